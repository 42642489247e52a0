// linear with AMX tiles for many activation rows, which were packed into whole tiles before.
//
// The packed activations lie as [block of 2048 inputs][tile of 16 rows][step of 32 inputs][16][32],
// padded with zeros. In a block of inputs some panels' lines stay in L2 while all rows pass by; the
// sums wait in memory between blocks. Every output element is the same chain of tile steps as in
// linear.cc.
//
// Measured on a Granite Rapids core (3.07 TFLOP/s of tile products alone, 2.47 with the operands in
// L1): operands from L2 give 1.8 TFLOP/s, and sums that go to memory and back cost as much as four
// steps. So blocks are long, and what comes next is brought to L2 meanwhile.
#include <immintrin.h>

#include "kernels/cpu/amx/kernels.h"
#include "kernels/cpu/amx/tiles.h"

namespace sluice::kernels::amx {
namespace {

constexpr int64_t kBlockSteps = 64;
// Results larger than this would push the operands out of L2, so they are written past it: 30 %
// faster.
constexpr int64_t kStreamBytes = int64_t{2} << 20;
constexpr int64_t kBlockInputs = kBlockSteps * kStepInputs;

inline int64_t RowTiles(int64_t rows) {
  return (rows + 2 * kTileRows - 1) / (2 * kTileRows) * 2;
}  // an even number
inline int64_t Steps(int64_t cols) {
  return (cols + kStepInputs - 1) / kStepInputs;
}

// Where a block's tiles begin.
inline uint8_t* BlockOf(const LinearArgs& args, int64_t block) {
  return args.packed_x + block * kBlockSteps * RowTiles(args.rows) * kTileBytes;
}

// The tiles of 16 rows in one block of inputs.
inline void PackTiles(const LinearArgs& args, int64_t tile, int64_t block) {
  const int64_t first_input = block * kBlockInputs;
  const int64_t steps = Steps(args.cols) - block * kBlockSteps < kBlockSteps
                            ? Steps(args.cols) - block * kBlockSteps
                            : kBlockSteps;
  uint8_t* to = BlockOf(args, block) + tile * steps * kTileBytes;
  for (int64_t r = 0; r < kTileRows; ++r) {
    const int64_t row = tile * kTileRows + r;
    const auto* x = static_cast<const uint16_t*>(args.x) + row * args.x_stride + first_input;
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t left = args.cols - first_input - step * kStepInputs;
      const __mmask32 mask = row >= args.rows      ? 0
                             : left >= kStepInputs ? 0xFFFFFFFFu
                                                   : (1u << left) - 1;
      _mm512_store_si512(to + step * kTileBytes + r * 64,
                         _mm512_maskz_loadu_epi16(mask, x + step * kStepInputs));
    }
  }
}

}  // namespace

int64_t PackedXBytes(int64_t rows, int64_t cols) {
  return RowTiles(rows) * Steps(cols) * kTileBytes;
}

int64_t PackUnits(int64_t rows, int64_t cols) {
  return RowTiles(rows) * ((Steps(cols) + kBlockSteps - 1) / kBlockSteps);
}

void PackX(const LinearArgs& args, int64_t unit_begin, int64_t unit_end) {
  const int64_t tiles = RowTiles(args.rows);
  for (int64_t unit = unit_begin; unit < unit_end; ++unit)
    PackTiles(args, unit % tiles, unit / tiles);
}

namespace {

// Brings the next lines of a stretch of memory to L2, a few at each step, while the present ones
// are worked on.
class Prefetcher {
 public:
  Prefetcher(const uint8_t* begin, int64_t bytes) : next_(begin), end_(begin + bytes) {}
  template <int kLines>
  void Step() {
    if (next_ >= end_) return;
#pragma GCC unroll 8
    for (int i = 0; i < kLines; ++i)
      _mm_prefetch(reinterpret_cast<const char*>(next_ + i * 64), _MM_HINT_T1);
    next_ += kLines * 64;
  }

 private:
  const uint8_t* next_;
  const uint8_t* end_;
};

// The lines of a pair of panels in one block of inputs; the last step's apart, as it may be a
// padded copy.
struct PanelPair {
  const uint8_t* w[2];
  const uint8_t* last[2];
};

// Multiplies two tiles of rows by two panels; `sums`: the four tiles of sums, read unless `start`.
inline void MultiplyPair(const uint8_t* x0, const uint8_t* x1, const PanelPair& panels,
                         int64_t steps, bool start, float (*sums)[kTileRows * kPanelRows],
                         Prefetcher& x_ahead, Prefetcher& w_ahead) {
  if (start) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums[0], 64);
    _tile_loadd(1, sums[1], 64);
    _tile_loadd(2, sums[2], 64);
    _tile_loadd(3, sums[3], 64);
  }
  const auto step_of = [&](int64_t step, const uint8_t* w0, const uint8_t* w1)
      __attribute__((always_inline)) {
    _tile_loadd(4, x0 + step * kTileBytes, 64);
    _tile_loadd(6, w0, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, w1, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, x1 + step * kTileBytes, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  };
  for (int64_t step = 0; step + 1 < steps; ++step) {
    x_ahead.Step<8>();
    w_ahead.Step<2>();
    step_of(step, panels.w[0] + step * kTileBytes, panels.w[1] + step * kTileBytes);
  }
  step_of(steps - 1, panels.last[0], panels.last[1]);
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  _tile_stored(2, sums[2], 64);
  _tile_stored(3, sums[3], 64);
}

// Writes the sums of two tiles of rows to y, row by row: a column of tiles would touch a page for
// every line.
inline void StoreRows(const LinearArgs& args, int64_t first_row,
                      const float (*sums)[kTileRows * kPanelRows], int64_t panel_begin,
                      int64_t panel_end) {
  const int64_t rows =
      args.rows - first_row < 2 * kTileRows ? args.rows - first_row : 2 * kTileRows;
  const bool stream = args.rows * args.outputs * 4 > kStreamBytes;
  for (int64_t r = 0; r < rows; ++r) {
    float* y = args.y + (first_row + r) * args.y_stride;
    const int64_t tile = r / kTileRows * 2;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const int64_t i = panel - panel_begin;
      StoreSum(args, y, sums[i / 2 * 4 + tile + i % 2] + r % kTileRows * kPanelRows,
               panel * kPanelRows, stream);
    }
  }
}

}  // namespace

void LinearBf16Packed(const LinearArgs& args, int64_t panel_begin, int64_t panel_end) {
  // [row tile pair][panel pair * row tile * panel][16][16], of the thread's stack.
  alignas(64) float sums[kPackedMaxRows / 32][kPackedPanels * 2][kTileRows * kPanelRows];
  alignas(64) uint8_t padded[kPackedPanels][kTileBytes];  // last steps of less than 32 inputs
  PanelPair pairs[kPackedPanels / 2];
  const int64_t steps = Steps(args.cols);
  const int64_t row_pairs = RowTiles(args.rows) / 2;
  const int64_t panel_pairs = (panel_end - panel_begin + 1) / 2;
  const auto* w = static_cast<const uint8_t*>(args.w);
  Configure(kTileRows, kTileRows);
  for (int64_t first_step = 0; first_step < steps; first_step += kBlockSteps) {
    const bool is_last = first_step + kBlockSteps >= steps;
    const int64_t block_steps = is_last ? steps - first_step : kBlockSteps;
    const int64_t rest = is_last ? args.cols % kStepInputs : 0;
    for (int64_t i = 0; i < 2 * panel_pairs; ++i) {
      // Where the number of panels is odd, the last is computed twice and stored once.
      const int64_t panel = panel_begin + i < panel_end ? panel_begin + i : panel_end - 1;
      const uint8_t* lines = w + panel * args.panel_bytes + first_step * kTileBytes;
      const uint8_t* last = lines + (block_steps - 1) * kTileBytes;
      if (rest != 0) {
        __builtin_memset(padded[i], 0, kTileBytes);
        __builtin_memcpy(padded[i], last, static_cast<size_t>((rest + 1) / 2 * kLineBytes));
        StoreBefore(padded[i]);
        last = padded[i];
      }
      pairs[i / 2].w[i % 2] = lines;
      pairs[i / 2].last[i % 2] = last;
    }
    const uint8_t* block = BlockOf(args, first_step / kBlockSteps);
    const int64_t tile_bytes = block_steps * kTileBytes;
    const int64_t panels_ahead = (args.outputs + kPanelRows - 1) / kPanelRows - panel_end;
    Prefetcher w_ahead(
        w + panel_end * args.panel_bytes + first_step * kTileBytes,
        tile_bytes *
            (panels_ahead < panel_end - panel_begin ? panels_ahead : panel_end - panel_begin));
    for (int64_t row_pair = 0; row_pair < row_pairs; ++row_pair) {
      const uint8_t* x = block + row_pair * 2 * tile_bytes;
      Prefetcher x_ahead(x + 2 * tile_bytes, row_pair + 1 < row_pairs ? 2 * tile_bytes : 0);
      // Sums that need not wait for another block stay in one place, and so in L1.
      auto* row_sums = sums[steps <= kBlockSteps ? 0 : row_pair];
      for (int64_t pair = 0; pair < panel_pairs; ++pair) {
        MultiplyPair(x, x + tile_bytes, pairs[pair], block_steps, first_step == 0,
                     row_sums + pair * 4, x_ahead, w_ahead);
      }
      if (is_last) StoreRows(args, row_pair * 2 * kTileRows, row_sums, panel_begin, panel_end);
    }
  }
  _tile_release();
  _mm_sfence();
}

}  // namespace sluice::kernels::amx
