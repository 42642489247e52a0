// linear with 8-bit integers. Uses the vector operations of a simd.h and the dot product of the
// file that includes this one, which defines:
//   Weights, WeightsOf(Words): four consecutive weights of each row, prepared for Dot; Inputs,
//   InputsAt(const int8_t*): four inputs for all rows, prepared for Dot; Sums: a vector of 32-bit
//   integers. Not Words, which GCC 12 treats as 64-bit integers: sums that change their type at
//   every step are kept on the stack; Dot(sums, weights, inputs): 32-bit sums plus the products;
//   Correction(x, cols): what must be added to the sums of a row of inputs at the end.
// The sums are exact, so their order does not matter.
#pragma once

#include "kernels/cpu/all_lanes_inl.h"
#include "kernels/cpu/tiles_inl.h"
#include "kernels/kernel_table.h"

namespace sluice::kernels {
namespace {

constexpr int kI8PanelRows = 16;
constexpr int kI8PanelVectors = kI8PanelRows / kLanes;
constexpr int64_t kI8LineBytes = 64;  // four consecutive weights of each of 16 rows
constexpr int64_t kI8BytesAhead = 2048;
constexpr int64_t kI8SegmentLines = 64;  // lines of four panels: 16 KiB
constexpr int64_t kI8SegmentRows = 48;

// The sums of products of kRows input rows with the weight rows of kPanels panels.
template <int kRows, int kPanels>
struct I8Tile {
  static constexpr int kVectors = kPanels * kI8PanelVectors;

  __attribute__((always_inline)) void Start() {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Sums{};
    }
  }

  // Adds the products of one line of each panel with the inputs x, rows x_stride apart.
  __attribute__((always_inline)) void AddLine(const uint8_t* const (&panels)[kPanels], int64_t line,
                                              const int8_t* x, int64_t x_stride) {
    const auto weights_of = [&](int v) __attribute__((always_inline)) {
      return WeightsOf(LoadWords(panels[v / kI8PanelVectors] + line * kI8LineBytes +
                                 v % kI8PanelVectors * kLanes * 4));
    };
    // Keeps inputs or weights, whichever are fewer, in registers and streams the others.
    if constexpr (kRows < kVectors) {
      Inputs inputs[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) inputs[r] = InputsAt(x + r * x_stride);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Weights weights = weights_of(v);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sums[r][v] = Dot(sums[r][v], weights, inputs[r]);
      }
    } else {
      Weights weights[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) weights[v] = weights_of(v);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Inputs inputs = InputsAt(x + r * x_stride);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[r][v] = Dot(sums[r][v], weights[v], inputs);
      }
    }
  }

  // Adds lines [begin, end). For each line, also prefetches the line with the same index from each
  // ahead[].
  template <int kAhead>
  __attribute__((always_inline)) void AddLines(const LinearArgs& args, int64_t row,
                                               const uint8_t* const (&panels)[kPanels],
                                               int64_t begin, int64_t end,
                                               const uint8_t* const* ahead) {
    const auto* x = static_cast<const int8_t*>(args.x) + row * args.x_stride;
    for (int64_t line = begin; line < end; ++line) {
#pragma GCC unroll 8
      for (int a = 0; a < kAhead; ++a) __builtin_prefetch(ahead[a] + line * kI8LineBytes, 0, 2);
      AddLine(panels, line, x + line * 4, args.x_stride);
    }
  }

  // Adds the inputs after the last whole line, if any, and the corrections of the tile's rows; then
  // writes the results.
  __attribute__((always_inline)) void Finish(const LinearArgs& args, const int32_t* corrections,
                                             int64_t row, int64_t panel,
                                             const uint8_t* const (&panels)[kPanels]) {
    const int64_t lines = args.cols / 4;
    if (const int64_t rest = args.cols % 4; rest != 0) {
      const auto* x = static_cast<const int8_t*>(args.x) + row * args.x_stride + lines * 4;
      int8_t last[kRows][4] = {};
      for (int r = 0; r < kRows; ++r)
        __builtin_memcpy(last[r], x + r * args.x_stride, static_cast<size_t>(rest));
      AddLine(panels, lines, last[0], 4);
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int64_t n = panel * kI8PanelRows + v * kLanes;
      if (n >= args.outputs) break;
      WithLanes(
          args.outputs - n, [&](auto lanes) __attribute__((always_inline)) {
            const Floats row_scales = Load(args.row_scales + n, lanes);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
              const Sums sum = sums[r][v] + (Sums)SetWords(corrections[r]);
              Floats value = Mul(ToFloats((Words)sum), row_scales);
              value = Mul(value, Set(args.x_scales[row + r]));
              if (args.bias != nullptr) value = Add(value, Load(args.bias + n, lanes));
              Store(args.y + (row + r) * args.y_stride + n, value, lanes);
            }
          });
    }
  }

  // These functions save the sums to memory between segments of inputs, and restore them.
  __attribute__((always_inline)) void Keep(Sums (*to)[kVectors]) const {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) to[r][v] = sums[r][v];
    }
  }
  __attribute__((always_inline)) void GoOn(const Sums (*from)[kVectors]) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = from[r][v];
    }
  }

  Sums sums[kRows][kVectors];
};

template <int kRows, int kPanels>
void MultiplyI8Tile(const LinearArgs& args, const int32_t* corrections, int64_t row,
                    int64_t panel) {
  const uint8_t* panels[kPanels];
  const uint8_t* ahead[kPanels];
  for (int p = 0; p < kPanels; ++p) {
    panels[p] = static_cast<const uint8_t*>(args.w) + (panel + p) * args.panel_bytes;
    ahead[p] = panels[p] + kI8BytesAhead;
  }
  I8Tile<kRows, kPanels> tile;
  tile.Start();
  tile.template AddLines<kPanels>(args, row, panels, 0, args.cols / 4, ahead);
  tile.Finish(args, corrections, row, panel, panels);
}

// For up to kI8SegmentRows rows. Weights are processed in segments. The first tiles prefetch the
// next segment. Otherwise the memory would be idle while the other tiles read the current segment
// from the cache.
template <int kMaxRows, int kPanels>
void MultiplyI8Segments(const LinearArgs& args, const int32_t* corrections, int64_t row_begin,
                        int64_t row_end, int64_t panel) {
  constexpr int kVectors = kPanels * kI8PanelVectors;
  constexpr int kAhead = (kPanels + 1) / 2;
  Sums sums[kI8SegmentRows][kVectors];
  const uint8_t* panels[kPanels];
  const uint8_t* ahead[kPanels];
  for (int p = 0; p < kPanels; ++p) {
    panels[p] = static_cast<const uint8_t*>(args.w) + (panel + p) * args.panel_bytes;
    ahead[p] = panels[p] + kI8SegmentLines * kI8LineBytes;
  }
  const int64_t lines = args.cols / 4;
  for (int64_t begin = 0; begin < lines; begin += kI8SegmentLines) {
    const bool is_last = lines - begin <= kI8SegmentLines;
    const int64_t end = is_last ? lines : begin + kI8SegmentLines;
    int next_ahead = is_last ? kPanels : 0;
    ForEachTile<kMaxRows, kPanels>(
        row_begin, row_end, 0, kPanels, [&]<int kRows, int kTilePanels>(int64_t row, int64_t) {
          if constexpr (kTilePanels == kPanels) {
            I8Tile<kRows, kPanels> tile;
            Sums(*const kept)[kVectors] = sums + (row - row_begin);
            if (begin == 0)
              tile.Start();
            else
              tile.GoOn(kept);
            if (next_ahead + kAhead <= kPanels) {
              tile.template AddLines<kAhead>(args, row, panels, begin, end, ahead + next_ahead);
              next_ahead += kAhead;
            } else {
              tile.template AddLines<0>(args, row, panels, begin, end, nullptr);
            }
            if (is_last)
              tile.Finish(args, corrections + (row - row_begin), row, panel, panels);
            else
              tile.Keep(kept);
          }
        });
  }
}

// Computes the range in tiles of up to kMaxRows rows by kWidePanels panels.
template <int kMaxRows, int kWidePanels>
inline void MultiplyI8Range(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                            int64_t panel_begin, int64_t panel_end) {
  const int64_t rows = row_end - row_begin;
  int32_t corrections[kRowsPerUnit];
  const auto* x = static_cast<const int8_t*>(args.x) + row_begin * args.x_stride;
  for (int64_t row = 0; row < rows; ++row)
    corrections[row] = Correction(x + row * args.x_stride, args.cols);
  if (rows <= kMaxRows || rows > kI8SegmentRows || args.cols <= 4 * kI8SegmentLines) {
    ForEachTile<kMaxRows, kWidePanels>(row_begin, row_end, panel_begin, panel_end,
                                       [&]<int kRows, int kPanels>(int64_t row, int64_t panel) {
                                         MultiplyI8Tile<kRows, kPanels>(
                                             args, corrections + (row - row_begin), row, panel);
                                       });
    return;
  }
  ForEachPanelGroup<kWidePanels>(panel_begin, panel_end, [&]<int kPanels>(int64_t panel) {
    MultiplyI8Segments<kMaxRows, kPanels>(args, corrections, row_begin, row_end, panel);
  });
}

}  // namespace
}  // namespace sluice::kernels
