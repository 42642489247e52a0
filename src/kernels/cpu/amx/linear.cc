// linear with AMX tiles: BF16 (tdpbf16ps) and INT8 (tdpbssd).
//
// A tile step multiplies 16 activation rows by 16 output rows over 64 bytes of inputs. 16 lines of
// a weight panel, stored or expanded from narrow codes, form a tile without repacking. Each
// output element is summed over ascending inputs, in the same order for one row as for 16.
// The BF16 instruction flushes subnormal numbers to zero.
#include <immintrin.h>

#include "kernels/cpu/amx/kernels.h"
#include "kernels/cpu/amx/tiles.h"

namespace sluice::kernels::amx {
namespace {

// Number of steps of narrow codes that are expanded at a time. While one chunk is multiplied, the
// next one is expanded, because a tile load directly after the stores would wait for them.
constexpr int64_t kChunkSteps = 1;
// Prefetch distance for codes and their scales. Without prefetches, the speed is halved.
constexpr int64_t kBytesAhead = 4096;

// The last step of a row whose length is not a multiple of 64 bytes, padded with zeros.
struct alignas(64) LastStep {
  uint8_t x[2][kTileBytes];
  uint8_t w[2][kTileBytes];
};

template <int kRowTiles, int kPanels>
inline void FillLastStep(LastStep& last, const uint8_t* x, int64_t x_row_bytes,
                         const int (&rows)[2], const uint8_t* const (&panels)[2], int64_t bytes) {
  __builtin_memset(&last, 0, sizeof(last));
  for (int tile = 0; tile < kRowTiles; ++tile) {
    for (int r = 0; r < rows[tile]; ++r) {
      __builtin_memcpy(last.x[tile] + r * kStepBytes, x + (tile * kTileRows + r) * x_row_bytes,
                       static_cast<size_t>(bytes));
    }
  }
  for (int p = 0; p < kPanels; ++p)
    __builtin_memcpy(last.w[p], panels[p], static_cast<size_t>((bytes + 3) / 4 * kLineBytes));
  StoreBefore(&last);
}

// One step: kRowTiles x kPanels tile products.
template <InputType kType, int kRowTiles, int kPanels>
__attribute__((always_inline)) inline void Step(const uint8_t* x, int64_t x_tile_bytes,
                                                int64_t x_row_bytes, const uint8_t* w0,
                                                const uint8_t* w1) {
  _tile_loadd(4, x, x_row_bytes);
  _tile_loadd(6, w0, kLineBytes);
  SLUICE_AMX_MULTIPLY(0, 4, 6);
  if constexpr (kPanels > 1) {
    _tile_loadd(7, w1, kLineBytes);
    SLUICE_AMX_MULTIPLY(1, 4, 7);
  }
  if constexpr (kRowTiles > 1) {
    _tile_loadd(5, x + x_tile_bytes, x_row_bytes);
    SLUICE_AMX_MULTIPLY(2, 5, 6);
    if constexpr (kPanels > 1) SLUICE_AMX_MULTIPLY(3, 5, 7);
  }
}

// The lines of up to two panels, in the order of the steps.
template <int kPanels>
class StoredLines {
 public:
  StoredLines(const LinearArgs& args, int64_t panel, int64_t /*steps*/) {
    for (int p = 0; p < 2; ++p) {
      panels_[p] =
          static_cast<const uint8_t*>(args.w) + (panel + (p < kPanels ? p : 0)) * args.panel_bytes;
    }
  }
  void BeginChunk(int64_t /*step*/) {}
  const uint8_t* At(int p, int64_t step) const { return panels_[p] + step * kTileBytes; }

 private:
  const uint8_t* panels_[2];
};

// Like the class above, but expands the lines from narrow codes, one chunk ahead.
template <int kPanels>
class ExpandedLines {
 public:
  ExpandedLines(const LinearArgs& args, int64_t panel, int64_t steps)
      : args_(args), panel_(panel), steps_(steps) {
    Expand(0);
  }
  // Call before the first step of every chunk.
  void BeginChunk(int64_t step) { Expand(step + kChunkSteps); }
  const uint8_t* At(int p, int64_t step) const {
    return lines_[step / kChunkSteps % 2][p] + step % kChunkSteps * kTileBytes;
  }

 private:
  __attribute__((always_inline)) void Expand(int64_t step) {
    if (step >= steps_) return;
    const int64_t count = steps_ - step < kChunkSteps ? steps_ - step : kChunkSteps;
    for (int p = 0; p < kPanels; ++p) {
      const uint8_t* codes = static_cast<const uint8_t*>(args_.w) +
                             (panel_ + p) * args_.panel_bytes + step * args_.code_step_bytes;
      const uint8_t* scales =
          args_.scales + (panel_ + p) * args_.panel_scale_bytes + step * args_.scale_step_bytes;
      args_.expand(codes, scales, count, lines_[step / kChunkSteps % 2][p]);
      const uint8_t* scales_ahead =
          scales + kBytesAhead / args_.code_step_bytes * args_.scale_step_bytes;
      _mm_prefetch(reinterpret_cast<const char*>(scales_ahead), _MM_HINT_T0);
      const uint8_t* ahead = codes + kBytesAhead;
      // After the end of the panel, prefetches the panel that follows this pair.
      if (step * args_.code_step_bytes + kBytesAhead >= args_.panel_bytes)
        ahead += (kPanels - 1) * args_.panel_bytes;
      for (int64_t i = 0; i < count * args_.code_step_bytes; i += kLineBytes)
        _mm_prefetch(reinterpret_cast<const char*>(ahead + i), _MM_HINT_T0);
    }
    StoreBefore(lines_);
  }

  const LinearArgs& args_;
  int64_t panel_;
  int64_t steps_;
  alignas(64) uint8_t lines_[2][2][kChunkSteps * kTileBytes];
};

// The sums of two tiles of rows and two panels: [row tile][panel][16][16].
struct alignas(64) Sums {
  float values[4][kTileRows * kPanelRows];
};

template <int kRowTiles, int kPanels>
inline void StoreTiles(Sums& sums) {
  _tile_stored(0, sums.values[0], 64);
  if constexpr (kPanels > 1) _tile_stored(1, sums.values[1], 64);
  if constexpr (kRowTiles > 1) _tile_stored(2, sums.values[2], 64);
  if constexpr (kRowTiles > 1 && kPanels > 1) _tile_stored(3, sums.values[3], 64);
}

inline void ZeroTiles() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// Ends block `block`: adds its sums, multiplied by the block's scales, to the totals.
template <int kRowTiles, int kPanels>
inline void EndBlock(const LinearArgs& args, int64_t panel, int64_t block, const int (&rows)[2],
                     Sums& totals) {
  Sums sums;
  StoreTiles<kRowTiles, kPanels>(sums);
  ZeroTiles();
  for (int tile = 0; tile < kRowTiles; ++tile) {
    for (int p = 0; p < kPanels; ++p) {
      FoldBlock(sums.values[tile * 2 + p],
                args.block_scales + (panel + p) * args.panel_block_scales + block * kPanelRows,
                rows[tile], block == 0, totals.values[tile * 2 + p]);
    }
  }
}

// `rows`: number of rows of the two row tiles for which the tiles are configured.
template <InputType kType, typename Lines, int kRowTiles, int kPanels>
void MultiplyTile(const LinearArgs& args, int64_t row, const int (&rows)[2], int64_t panel) {
  const int64_t x_row_bytes = args.x_stride * kTypeBytes<kType>;
  const uint8_t* x = static_cast<const uint8_t*>(args.x) + row * x_row_bytes;
  const int64_t x_tile_bytes = kTileRows * x_row_bytes;
  const int64_t row_bytes = args.cols * kTypeBytes<kType>;
  const int64_t rest = row_bytes % kStepBytes;
  const bool has_blocks = kType == InputType::kBf16 && args.block_scales != nullptr;

  ZeroTiles();
  Lines lines(args, panel, StepsOf(row_bytes));
  const int64_t steps = row_bytes / kStepBytes;
  int64_t block = 0;
  int64_t block_end = has_blocks ? args.block_steps : StepsOf(row_bytes) + 1;
  Sums sums;
  for (int64_t chunk = 0; chunk < steps; chunk += kChunkSteps) {
    lines.BeginChunk(chunk);
    const int64_t end = steps - chunk < kChunkSteps ? steps : chunk + kChunkSteps;
    if (chunk % kAwakeSteps == 0) KeepVectorsAwake();
    for (int64_t step = chunk; step < end; ++step) {
      Step<kType, kRowTiles, kPanels>(x + step * kStepBytes, x_tile_bytes, x_row_bytes,
                                      lines.At(0, step), lines.At(1, step));
      if (step + 1 == block_end) {
        EndBlock<kRowTiles, kPanels>(args, panel, block++, rows, sums);
        block_end += args.block_steps;
      }
    }
  }
  if (rest != 0) {
    LastStep last;
    const uint8_t* const last_lines[2] = {lines.At(0, steps), lines.At(1, steps)};
    FillLastStep<kRowTiles, kPanels>(last, x + steps * kStepBytes, x_row_bytes, rows, last_lines,
                                     rest);
    Step<kType, kRowTiles, kPanels>(last.x[0], kTileBytes, kStepBytes, last.w[0], last.w[1]);
  }

  if (!has_blocks)
    StoreTiles<kRowTiles, kPanels>(sums);
  else if (block * args.block_steps < StepsOf(row_bytes))
    EndBlock<kRowTiles, kPanels>(args, panel, block, rows, sums);
  for (int tile = 0; tile < kRowTiles; ++tile) {
    for (int p = 0; p < kPanels; ++p) {
      for (int r = 0; r < rows[tile]; ++r) {
        StoreSum<kType>(args, row + tile * kTileRows + r,
                        sums.values[tile * 2 + p] + r * kPanelRows, (panel + p) * kPanelRows,
                        false);
      }
    }
  }
}

template <InputType kType, template <int> typename Lines>
inline void MultiplyRows(const LinearArgs& args, int64_t row, int64_t count, int64_t panel,
                         bool two_panels) {
  const int rows[2] = {static_cast<int>(count < kTileRows ? count : kTileRows),
                       static_cast<int>(count > kTileRows ? count - kTileRows : 1)};
  if (count > kTileRows) {
    if (two_panels)
      MultiplyTile<kType, Lines<2>, 2, 2>(args, row, rows, panel);
    else
      MultiplyTile<kType, Lines<1>, 2, 1>(args, row, rows, panel);
  } else {
    if (two_panels)
      MultiplyTile<kType, Lines<2>, 1, 2>(args, row, rows, panel);
    else
      MultiplyTile<kType, Lines<1>, 1, 1>(args, row, rows, panel);
  }
}

inline void ConfigureFor(int64_t rows) {
  Configure(static_cast<int>(rows < kTileRows ? rows : kTileRows),
            static_cast<int>(rows > kTileRows ? rows - kTileRows : 1));
}

template <InputType kType, template <int> typename Lines>
inline void MultiplyRange(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                          int64_t panel_begin, int64_t panel_end) {
  constexpr int64_t kMaxRows = 2 * kTileRows;
  const int64_t rows = row_end - row_begin;
  const int64_t rest = rows % kMaxRows;
  const int64_t whole = rows - rest;
  if (whole > 0) {
    ConfigureFor(kMaxRows);
    for (int64_t panel = panel_begin; panel < panel_end; panel += 2) {
      for (int64_t row = 0; row < whole; row += kMaxRows) {
        MultiplyRows<kType, Lines>(args, row_begin + row, kMaxRows, panel, panel + 1 < panel_end);
      }
    }
  }
  if (rest > 0) {
    ConfigureFor(rest);
    for (int64_t panel = panel_begin; panel < panel_end; panel += 2) {
      MultiplyRows<kType, Lines>(args, row_begin + whole, rest, panel, panel + 1 < panel_end);
    }
  }
  _tile_release();
}

}  // namespace

void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  if (args.expand == nullptr)
    MultiplyRange<InputType::kBf16, StoredLines>(args, row_begin, row_end, panel_begin, panel_end);
  else
    MultiplyRange<InputType::kBf16, ExpandedLines>(args, row_begin, row_end, panel_begin,
                                                   panel_end);
}

void LinearI8(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end) {
  MultiplyRange<InputType::kI8, StoredLines>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::amx
