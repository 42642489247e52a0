// linear with AMX tiles (tdpbf16ps).
//
// A tile step multiplies 16 activation rows by 16 output rows over 32 inputs: 16 lines of a weight
// panel are a tile as they lie. Every output element is one chain of tile steps over rising inputs,
// the same for one row as for 16. The instruction takes subnormal numbers for zero.
#include <immintrin.h>

#include "kernels/cpu/amx/kernels.h"
#include "kernels/cpu/amx/tiles.h"

namespace sluice::kernels::amx {
namespace {

// The last step of a row whose length is no multiple of 32, padded with zeros.
struct alignas(64) LastStep {
  uint16_t x[2][kTileRows][kStepInputs];
  uint8_t w[2][kTileBytes];
};

template <int kRowTiles, int kPanels>
inline void FillLastStep(LastStep& last, const uint16_t* x, int64_t x_stride, const int (&rows)[2],
                         const uint8_t* const (&panels)[2], int64_t inputs) {
  __builtin_memset(&last, 0, sizeof(last));
  for (int tile = 0; tile < kRowTiles; ++tile) {
    for (int r = 0; r < rows[tile]; ++r) {
      __builtin_memcpy(last.x[tile][r], x + (tile * kTileRows + r) * x_stride,
                       static_cast<size_t>(inputs) * 2);
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    __builtin_memcpy(last.w[p], panels[p], static_cast<size_t>((inputs + 1) / 2 * kLineBytes));
  }
  StoreBefore(&last);
}

// One step: kRowTiles x kPanels tile products.
#define SLUICE_AMX_STEP(x_address, x_tile_bytes, x_row_bytes, w0, w1) \
  _tile_loadd(4, (x_address), (x_row_bytes));                         \
  _tile_loadd(6, (w0), kLineBytes);                                   \
  _tile_dpbf16ps(0, 4, 6);                                            \
  if constexpr (kPanels > 1) {                                        \
    _tile_loadd(7, (w1), kLineBytes);                                 \
    _tile_dpbf16ps(1, 4, 7);                                          \
  }                                                                   \
  if constexpr (kRowTiles > 1) {                                      \
    _tile_loadd(5, (x_address) + (x_tile_bytes), (x_row_bytes));      \
    _tile_dpbf16ps(2, 5, 6);                                          \
    if constexpr (kPanels > 1) _tile_dpbf16ps(3, 5, 7);               \
  }

// `rows`: of the two row tiles; the tiles are configured for them.
template <int kRowTiles, int kPanels>
void MultiplyTile(const LinearArgs& args, int64_t row, const int (&rows)[2], int64_t panel) {
  const uint8_t* panels[2];
  for (int p = 0; p < 2; ++p) {
    panels[p] = static_cast<const uint8_t*>(args.w) + (panel + (p < kPanels ? p : 0)) * args.panel_bytes;
  }
  const auto* x =
      reinterpret_cast<const uint8_t*>(static_cast<const uint16_t*>(args.x) + row * args.x_stride);
  const int64_t x_row_bytes = args.x_stride * 2;
  const int64_t x_tile_bytes = kTileRows * x_row_bytes;

  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const int64_t steps = args.cols / kStepInputs;
  for (int64_t step = 0; step < steps; ++step) {
    SLUICE_AMX_STEP(x + step * 64, x_tile_bytes, x_row_bytes, panels[0] + step * kTileBytes,
                    panels[1] + step * kTileBytes)
  }
  if (const int64_t inputs = args.cols % kStepInputs; inputs != 0) {
    LastStep last;
    const uint8_t* const last_lines[2] = {panels[0] + steps * kTileBytes,
                                          panels[1] + steps * kTileBytes};
    FillLastStep<kRowTiles, kPanels>(last,
                                     reinterpret_cast<const uint16_t*>(x) + steps * kStepInputs,
                                     args.x_stride, rows, last_lines, inputs);
    const auto* last_x = reinterpret_cast<const uint8_t*>(last.x);
    SLUICE_AMX_STEP(last_x, kTileBytes, 64, last.w[0], last.w[1])
  }

  alignas(64) float sums[4][kTileRows * kPanelRows];
  _tile_stored(0, sums[0], 64);
  if constexpr (kPanels > 1) _tile_stored(1, sums[1], 64);
  if constexpr (kRowTiles > 1) _tile_stored(2, sums[2], 64);
  if constexpr (kRowTiles > 1 && kPanels > 1) _tile_stored(3, sums[3], 64);
  for (int tile = 0; tile < kRowTiles; ++tile) {
    for (int p = 0; p < kPanels; ++p) {
      for (int r = 0; r < rows[tile]; ++r) {
        float* y = args.y + (row + tile * kTileRows + r) * args.y_stride;
        StoreSum(args, y, sums[tile * 2 + p] + r * kPanelRows, (panel + p) * kPanelRows, false);
      }
    }
  }
}

#undef SLUICE_AMX_STEP

inline void MultiplyRows(const LinearArgs& args, int64_t row, int64_t count, int64_t panel,
                         bool two_panels) {
  const int rows[2] = {static_cast<int>(count < kTileRows ? count : kTileRows),
                       static_cast<int>(count > kTileRows ? count - kTileRows : 1)};
  if (count > kTileRows) {
    if (two_panels)
      MultiplyTile<2, 2>(args, row, rows, panel);
    else
      MultiplyTile<2, 1>(args, row, rows, panel);
  } else {
    if (two_panels)
      MultiplyTile<1, 2>(args, row, rows, panel);
    else
      MultiplyTile<1, 1>(args, row, rows, panel);
  }
}

inline void ConfigureFor(int64_t rows) {
  Configure(static_cast<int>(rows < kTileRows ? rows : kTileRows),
            static_cast<int>(rows > kTileRows ? rows - kTileRows : 1));
}

}  // namespace

void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  constexpr int64_t kMaxRows = 2 * kTileRows;
  const int64_t rows = row_end - row_begin;
  const int64_t rest = rows % kMaxRows;
  const int64_t whole = rows - rest;
  if (whole > 0) {
    ConfigureFor(kMaxRows);
    for (int64_t panel = panel_begin; panel < panel_end; panel += 2) {
      for (int64_t row = 0; row < whole; row += kMaxRows) {
        MultiplyRows(args, row_begin + row, kMaxRows, panel, panel + 1 < panel_end);
      }
    }
  }
  if (rest > 0) {
    ConfigureFor(rest);
    for (int64_t panel = panel_begin; panel < panel_end; panel += 2) {
      MultiplyRows(args, row_begin + whole, rest, panel, panel + 1 < panel_end);
    }
  }
  _tile_release();
}

}  // namespace sluice::kernels::amx
