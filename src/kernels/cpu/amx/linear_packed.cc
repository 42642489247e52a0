// linear with AMX tiles for many activation rows, packed into whole tiles beforehand.
//
// Layout of the packed activations: [block of 1024 bytes of inputs][tile of 16 rows][step of 64
// bytes][16][64], padded with zeros. Narrow codes of the panels are expanded once for all rows.
// Within a block of inputs, the lines of some panels stay in L2 while all rows are processed.
// Between blocks, the sums are kept in memory. Every output element is the same chain of tile steps
// as in linear.cc.
//
// Measured on a Granite Rapids core, with the operands in L1: 3.17 TFLOP/s for tile products of
// zeros, 2.55 for other numbers. With both operands in L2 it is 1.9: a core has few buffers for
// lines in transit to L1, and lines in transit from memory to L2 also occupy these buffers. So a
// block of two tiles of rows is as long as fits in L1, the weights bypass L1, and prefetches are
// spread evenly.
#include <immintrin.h>

#include "kernels/cpu/amx/kernels.h"
#include "kernels/cpu/amx/tiles.h"

namespace sluice::kernels::amx {
namespace {

constexpr int64_t kBlockSteps = 16;  // a multiple of the number of steps that share a scale
// Larger results would evict the operands from L2. So they are written with stores that bypass the
// caches, which is 30 % faster.
constexpr int64_t kStreamBytes = int64_t{2} << 20;

inline int64_t RowTiles(int64_t rows) {
  return (rows + 2 * kTileRows - 1) / (2 * kTileRows) * 2;
}  // an even number

// Returns the address where a block's tiles begin.
inline uint8_t* BlockOf(const LinearArgs& args, int64_t block) {
  return args.packed_x + block * kBlockSteps * RowTiles(args.rows) * kTileBytes;
}

// Packs the tiles of 16 rows in one block of inputs.
inline void PackTiles(const LinearArgs& args, int64_t tile, int64_t block) {
  const int64_t row_bytes = args.cols * args.x_bytes;
  const int64_t first_byte = block * kBlockSteps * kStepBytes;
  const int64_t left_steps = StepsOf(row_bytes) - block * kBlockSteps;
  const int64_t steps = left_steps < kBlockSteps ? left_steps : kBlockSteps;
  uint8_t* to = BlockOf(args, block) + tile * steps * kTileBytes;
  for (int64_t r = 0; r < kTileRows; ++r) {
    const int64_t row = tile * kTileRows + r;
    const uint8_t* x =
        static_cast<const uint8_t*>(args.x) + row * args.x_stride * args.x_bytes + first_byte;
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t left = row_bytes - first_byte - step * kStepBytes;
      const __mmask64 mask = row >= args.rows     ? 0
                             : left >= kStepBytes ? ~__mmask64{0}
                                                  : (__mmask64{1} << left) - 1;
      _mm512_store_si512(to + step * kTileBytes + r * kStepBytes,
                         _mm512_maskz_loadu_epi8(mask, x + step * kStepBytes));
    }
  }
}

}  // namespace

int64_t PackedXBytes(int64_t rows, int64_t row_bytes) {
  return RowTiles(rows) * StepsOf(row_bytes) * kTileBytes;
}

int64_t PackUnits(int64_t rows, int64_t row_bytes) {
  return RowTiles(rows) * ((StepsOf(row_bytes) + kBlockSteps - 1) / kBlockSteps);
}

void PackX(const LinearArgs& args, int64_t unit_begin, int64_t unit_end) {
  const int64_t tiles = RowTiles(args.rows);
  for (int64_t unit = unit_begin; unit < unit_end; ++unit)
    PackTiles(args, unit % tiles, unit / tiles);
}

namespace {

enum class Fetch { kToL2, kToWrite };

// Prefetches ranges of memory, a few lines per step.
template <Fetch kFetch>
class Prefetcher {
 public:
  // Prefetches `count` ranges of `bytes` bytes, whose starts are `stride` bytes apart, over `steps`
  // steps.
  Prefetcher(const void* begin, int64_t bytes, int64_t stride, int64_t count, int64_t steps)
      : next_(static_cast<const char*>(begin)),
        bytes_(bytes),
        skip_(stride - bytes),
        stretches_(count),
        lines_((count * bytes / kLineBytes + steps - 1) / steps),
        left_(bytes) {}
  void Step() {
    if (stretches_ == 0) return;
    for (int64_t i = 0; i < lines_; ++i) {
      if constexpr (kFetch == Fetch::kToL2)
        _mm_prefetch(next_ + i * kLineBytes, _MM_HINT_T1);
      else
        __builtin_prefetch(next_ + i * kLineBytes, 1);
    }
    next_ += lines_ * kLineBytes;
    left_ -= lines_ * kLineBytes;
    if (left_ > 0) return;
    next_ += left_ + skip_;
    left_ = bytes_;
    --stretches_;
  }

 private:
  const char* next_;
  int64_t bytes_;  // bytes per range
  int64_t skip_;   // bytes from the end of a range to the next range
  int64_t stretches_;
  int64_t lines_;  // cache lines per step
  int64_t left_;   // bytes left in the current range
};

// Memory to prefetch during the product of two row tiles by two panels: the next rows, the panels
// of the next block, and the memory of the next sums.
struct Ahead {
  Prefetcher<Fetch::kToL2>& x;
  Prefetcher<Fetch::kToL2>& w;
  Prefetcher<Fetch::kToWrite> sums;

  void Step() {
    x.Step();
    w.Step();
    sums.Step();
  }
};

// The sums of two tiles of rows and two panels: [row tile][panel][16][16].
using PairSums = float[4][kTileRows * kPanelRows];

// The lines of a pair of panels in one block of inputs. The last step has its own pointer, because
// it may be a padded copy.
struct PanelPair {
  const uint8_t* w[2];
  const uint8_t* last[2];
};

// Loads the initial sums of a pair into tile `tile`. Before that, stores the sums of the previous
// pair, which the tile still contains unless `before` is null. A macro, because tiles must be
// literals.
//
// Storing a tile waits for its last product and then occupies the matrix unit for 16 cycles.
// Between the first products of the next pair, this costs 8 cycles a tile, including loads; all
// four stores and loads in a row cost 30.
#define SLUICE_AMX_CHANGE_SUMS(tile)                                \
  do {                                                              \
    if (before != nullptr) _tile_stored(tile, (*before)[tile], 64); \
    if (start) {                                                    \
      _tile_zero(tile);                                             \
    } else {                                                        \
      _tile_loadd(tile, sums[tile], 64);                            \
    }                                                               \
  } while (false)

// Multiplies two tiles of rows by two panels and adds to `sums`; if `start`, overwrites them. The
// results stay in tiles 0 to 3. `before`: where to store the previous content of these tiles, or
// null. Calls between(step) after each step, for work on the vector units, which the products do
// not use.
template <InputType kType, typename Between>
inline void MultiplyPair(const uint8_t* x0, const uint8_t* x1, const PanelPair& panels,
                         int64_t steps, bool start, const PairSums& sums, PairSums* before,
                         Ahead& ahead, const Between& between) {
  const auto w = [&](int p, int64_t step) __attribute__((always_inline)) {
    return step + 1 == steps ? panels.last[p] : panels.w[p] + step * kTileBytes;
  };
  ahead.Step();
  KeepVectorsAwake();
  _tile_loadd(4, x0, 64);
  _tile_stream_loadd(6, w(0, 0), 64);
  SLUICE_AMX_CHANGE_SUMS(0);
  SLUICE_AMX_MULTIPLY(0, 4, 6);
  _tile_stream_loadd(7, w(1, 0), 64);
  SLUICE_AMX_CHANGE_SUMS(1);
  SLUICE_AMX_MULTIPLY(1, 4, 7);
  _tile_loadd(5, x1, 64);
  SLUICE_AMX_CHANGE_SUMS(2);
  SLUICE_AMX_MULTIPLY(2, 5, 6);
  SLUICE_AMX_CHANGE_SUMS(3);
  SLUICE_AMX_MULTIPLY(3, 5, 7);
  between(0);
  for (int64_t step = 1; step < steps; ++step) {
    ahead.Step();
    if (step % kAwakeSteps == 0) KeepVectorsAwake();
    _tile_loadd(4, x0 + step * kTileBytes, 64);
    _tile_stream_loadd(6, w(0, step), 64);
    SLUICE_AMX_MULTIPLY(0, 4, 6);
    _tile_stream_loadd(7, w(1, step), 64);
    SLUICE_AMX_MULTIPLY(1, 4, 7);
    _tile_loadd(5, x1 + step * kTileBytes, 64);
    SLUICE_AMX_MULTIPLY(2, 5, 6);
    SLUICE_AMX_MULTIPLY(3, 5, 7);
    between(step);
  }
}

inline void StoreTiles(PairSums& sums) {
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  _tile_stored(2, sums[2], 64);
  _tile_stored(3, sums[3], 64);
}

// A block of inputs whose sums are still in tiles 0 to 3. While the next block is multiplied, these
// sums are stored, multiplied by their scales and added to the totals.
struct BlockInTiles {
  PairSums* sums = nullptr;  // where to store them; null: the tiles contain no block
  PairSums* totals;
  const float* scales[2];  // scales of the outputs of each panel
  bool first;              // whether there are no totals yet

  void Fold(int64_t tile) const {
    FoldBlock((*sums)[tile], scales[tile % 2], kTileRows, first, (*totals)[tile]);
  }
  void End() {
    if (sums == nullptr) return;
    StoreTiles(*sums);
    for (int64_t tile = 0; tile < 4; ++tile) Fold(tile);
    sums = nullptr;
  }
};

// Like MultiplyPair, with scales for every `block_steps` steps (the scales of panel p start at
// scales[p], 16 per block). `totals` are complete after the next block, or after last.End().
// `place`: memory for the sums of a block.
inline void MultiplyPairOfBlocks(const uint8_t* x0, const uint8_t* x1, const PanelPair& panels,
                                 int64_t steps, bool start, PairSums& totals,
                                 const float* const (&scales)[2], int64_t block_steps,
                                 PairSums& place, BlockInTiles& last, Ahead& ahead) {
  for (int64_t first = 0; first < steps; first += block_steps) {
    const int64_t count = steps - first < block_steps ? steps - first : block_steps;
    const bool has_last = first + count == steps;
    PanelPair block;
    for (int p = 0; p < 2; ++p) {
      block.w[p] = panels.w[p] + first * kTileBytes;
      block.last[p] = has_last ? panels.last[p] : block.w[p] + (count - 1) * kTileBytes;
    }
    int64_t folded = last.sums == nullptr ? 4 : 0;  // number of tiles whose sums are already added
    MultiplyPair<InputType::kBf16>(
        x0 + first * kTileBytes, x1 + first * kTileBytes, block, count, true, place, last.sums,
        ahead, [&](int64_t step) __attribute__((always_inline)) {
          for (; folded < 4 && (folded + 1) * count <= 4 * (step + 1); ++folded) last.Fold(folded);
        });
    const int64_t offset = first / block_steps * kPanelRows;
    last = {&place, &totals, {scales[0] + offset, scales[1] + offset}, start && first == 0};
  }
}

// Writes the sums of two tiles of rows to y, row by row. Writing a column of tiles would touch a
// new page for every line.
template <InputType kType>
inline void StoreRows(const LinearArgs& args, int64_t first_row, const PairSums* sums,
                      int64_t panel_begin, int64_t panel_end) {
  const int64_t rows =
      args.rows - first_row < 2 * kTileRows ? args.rows - first_row : 2 * kTileRows;
  const bool stream = args.rows * args.outputs * 4 > kStreamBytes;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t tile = r / kTileRows * 2;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const int64_t i = panel - panel_begin;
      StoreSum<kType>(args, first_row + r, sums[i / 2][tile + i % 2] + r % kTileRows * kPanelRows,
                      panel * kPanelRows, stream);
    }
  }
}

// Returns the lines of `steps` steps of a panel: as stored, or expanded to `expanded`.
inline const uint8_t* LinesOf(const LinearArgs& args, int64_t panel, int64_t first_step,
                              int64_t steps, uint8_t* expanded) {
  const uint8_t* w = static_cast<const uint8_t*>(args.w) + panel * args.panel_bytes;
  if (args.expand == nullptr) return w + first_step * kTileBytes;
  args.expand(w + first_step * args.code_step_bytes,
              args.scales + panel * args.panel_scale_bytes + first_step * args.scale_step_bytes,
              steps, expanded);
  StoreBefore(expanded);
  return expanded;
}

template <InputType kType>
inline void MultiplyPacked(const LinearArgs& args, int64_t panel_begin, int64_t panel_end) {
  // [pair of row tiles][pair of panels], on the thread's stack.
  alignas(64) PairSums sums[kPackedMaxRows / 32][kPackedPanels / 2];
  // Copies of last steps that have less than 64 bytes.
  alignas(64) uint8_t padded[kPackedPanels][kTileBytes];
  PanelPair pairs[kPackedPanels / 2];
  const int64_t row_bytes = args.cols * kTypeBytes<kType>;
  const int64_t steps = StepsOf(row_bytes);
  const int64_t row_pairs = RowTiles(args.rows) / 2;
  const int64_t panel_pairs = (panel_end - panel_begin + 1) / 2;
  const int64_t panels_after = (args.outputs + kPanelRows - 1) / kPanelRows - panel_end;
  const int64_t panels_ahead =
      panels_after < panel_end - panel_begin ? panels_after : panel_end - panel_begin;
  Configure(kTileRows, kTileRows);
  PairSums* before = nullptr;  // sums of the pair that is still in the tiles
  BlockInTiles last_block;
  alignas(64) PairSums place;
  for (int64_t first_step = 0; first_step < steps; first_step += kBlockSteps) {
    const bool is_last = first_step + kBlockSteps >= steps;
    const int64_t block_steps = is_last ? steps - first_step : kBlockSteps;
    const int64_t rest = is_last ? row_bytes % kStepBytes : 0;
    for (int64_t i = 0; i < 2 * panel_pairs; ++i) {
      if (panel_begin + i == panel_end) {
        // If the number of panels is odd, the last panel is computed twice and stored once.
        pairs[i / 2].w[1] = pairs[i / 2].w[0];
        pairs[i / 2].last[1] = pairs[i / 2].last[0];
        break;
      }
      const uint8_t* lines = LinesOf(args, panel_begin + i, first_step, block_steps,
                                     args.lines + i * kBlockSteps * kTileBytes);
      const uint8_t* last = lines + (block_steps - 1) * kTileBytes;
      if (rest != 0) {
        __builtin_memset(padded[i], 0, kTileBytes);
        __builtin_memcpy(padded[i], last, static_cast<size_t>((rest + 3) / 4 * kLineBytes));
        StoreBefore(padded[i]);
        last = padded[i];
      }
      pairs[i / 2].w[i % 2] = lines;
      pairs[i / 2].last[i % 2] = last;
    }
    const uint8_t* block = BlockOf(args, first_step / kBlockSteps);
    const int64_t tile_bytes = block_steps * kTileBytes;
    const int64_t step_bytes = args.expand == nullptr ? kTileBytes : args.code_step_bytes;
    // Prefetches the next block of these panels, or the first block of the next panels.
    const int64_t next_panel = is_last ? panel_end : panel_begin;
    const int64_t next_step = is_last ? 0 : first_step + kBlockSteps;
    const int64_t next_steps = steps - next_step < kBlockSteps ? steps - next_step : kBlockSteps;
    const int64_t pair_steps = panel_pairs * block_steps;
    Prefetcher<Fetch::kToL2> w_ahead(static_cast<const uint8_t*>(args.w) +
                                         next_panel * args.panel_bytes + next_step * step_bytes,
                                     next_steps * step_bytes, args.panel_bytes,
                                     is_last ? panels_ahead : panel_end - panel_begin,
                                     row_pairs * pair_steps);
    for (int64_t row_pair = 0; row_pair < row_pairs; ++row_pair) {
      const uint8_t* x = block + row_pair * 2 * tile_bytes;
      // After the last rows of a block, continues with the first rows of the next block.
      Prefetcher<Fetch::kToL2> x_ahead(x + 2 * tile_bytes, 2 * tile_bytes, 0,
                                       is_last && row_pair + 1 == row_pairs ? 0 : 1, pair_steps);
      // With a single block, sums need not be stored between blocks, and reusing one place keeps it
      // in the caches.
      const bool stays = steps <= kBlockSteps;
      PairSums* row_sums = sums[stays ? 0 : row_pair];
      PairSums* next_row_sums = sums[stays ? 0 : (row_pair + 1) % row_pairs];
      for (int64_t pair = 0; pair < panel_pairs; ++pair) {
        const PairSums& next_sums = pair + 1 < panel_pairs ? row_sums[pair + 1] : next_row_sums[0];
        Ahead ahead{x_ahead, w_ahead, {next_sums, sizeof(PairSums), 0, 1, block_steps}};
        if (kType == InputType::kBf16 && args.block_scales != nullptr) {
          const int64_t panel = panel_begin + 2 * pair;
          const float* scales = args.block_scales + panel * args.panel_block_scales +
                                first_step / args.block_steps * kPanelRows;
          const bool alone = panel + 1 == panel_end;
          MultiplyPairOfBlocks(x, x + tile_bytes, pairs[pair], block_steps, first_step == 0,
                               row_sums[pair],
                               {scales, alone ? scales : scales + args.panel_block_scales},
                               args.block_steps, place, last_block, ahead);
          continue;
        }
        MultiplyPair<kType>(x, x + tile_bytes, pairs[pair], block_steps, first_step == 0,
                            row_sums[pair], before, ahead, [](int64_t) {});
        before = &row_sums[pair];
      }
      if (!is_last) continue;
      if (before != nullptr) StoreTiles(*before);
      before = nullptr;
      last_block.End();
      StoreRows<kType>(args, row_pair * 2 * kTileRows, row_sums, panel_begin, panel_end);
    }
  }
  _tile_release();
  _mm_sfence();
}

}  // namespace

void LinearBf16Packed(const LinearArgs& args, int64_t panel_begin, int64_t panel_end) {
  static_assert(kPackedLinesBytes == kPackedPanels * kBlockSteps * kTileBytes);
  MultiplyPacked<InputType::kBf16>(args, panel_begin, panel_end);
}

void LinearI8Packed(const LinearArgs& args, int64_t panel_begin, int64_t panel_end) {
  MultiplyPacked<InputType::kI8>(args, panel_begin, panel_end);
}

}  // namespace sluice::kernels::amx
