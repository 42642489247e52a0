// linear with F32 multiply-adds, in the vector operations of a simd.h included before.
//
// Every output element is one chain of fused multiply-adds over k in rising order, whatever the
// tile it is in. A tile is kRows activation rows by kPanels weight panels; x is broadcast, the
// lanes are output rows.
#pragma once

#include "kernels/cpu/tiles_inl.h"
#include "kernels/kernel_table.h"

namespace sluice::kernels {
namespace {

constexpr int kPanelRows = 16;
constexpr int kPanelVectors = kPanelRows / kLanes;
constexpr int64_t kConvertBlock =
    512;  // inputs of a row of BF16 activations that are widened at once; even

// A tile's sums for `count` inputs, put into, or added to, `sums` (row r, panel p at sums + r *
// sums_stride + 16 * p). panels[p]: where the inputs begin in panel p. `count` is even but at the
// end of the row.
template <bool kBf16Weights, int kRows, int kPanels>
inline void AddProducts(const float* x, int64_t x_stride, const uint8_t* const (&panels)[kPanels],
                        int64_t count, bool start, float* sums, int64_t sums_stride) {
  constexpr int kVectors = kPanels * kPanelVectors;
  constexpr int64_t kLineBytes = 64;  // of a panel: 16 F32, or 16 pairs of BF16
  Floats acc[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      acc[r][v] = start ? Zero() : Load(sums + r * sums_stride + v * kLanes);
  }
  const auto line = [&](int64_t index, int v) __attribute__((always_inline)) {
    return panels[v / kPanelVectors] + index * kLineBytes + v % kPanelVectors * kLanes * 4;
  };
  // Whichever are fewer, inputs or weights, stay in registers while the others pass by.
  const auto multiply = [&](int64_t k, const auto& weights_of) __attribute__((always_inline)) {
    if constexpr (kRows < kVectors) {
      Floats inputs[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) inputs[r] = Set(x[r * x_stride + k]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Floats weights = weights_of(v);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) acc[r][v] = MulAdd(inputs[r], weights, acc[r][v]);
      }
    } else {
      Floats weights[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) weights[v] = weights_of(v);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Floats input = Set(x[r * x_stride + k]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) acc[r][v] = MulAdd(input, weights[v], acc[r][v]);
      }
    }
  };
  if constexpr (kBf16Weights) {
    const int64_t pairs = count / 2;
    const auto add_first = [&](int64_t i) __attribute__((always_inline)) {
      multiply(
          2 * i, [&](int v)
                     __attribute__((always_inline)) { return FirstOfPair(LoadWords(line(i, v))); });
    };
    for (int64_t i = 0; i < pairs; ++i) {
      add_first(i);
      multiply(
          2 * i + 1, [&](int v) __attribute__((always_inline)) {
            return SecondOfPair(LoadWords(line(i, v)));
          });
    }
    if (count % 2 != 0) add_first(pairs);
  } else {
    for (int64_t k = 0; k < count; ++k) {
      multiply(
          k, [&](int v) __attribute__((always_inline)) {
            return Load(reinterpret_cast<const float*>(line(k, v)));
          });
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(sums + r * sums_stride + v * kLanes, acc[r][v]);
  }
}

// Writes a tile's sums, scaled and with the bias, to y.
template <int kRows, int kPanels>
inline void StoreTile(const LinearArgs& args, int64_t row, int64_t panel, const float* sums) {
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kPanels * kPanelVectors; ++v) {
      const int64_t n = panel * kPanelRows + v * kLanes;
      if (n >= args.outputs) break;
      const Mask mask = FirstLanes(args.outputs - n);
      Floats value = Load(sums + r * kPanels * kPanelRows + v * kLanes);
      if (args.row_scales != nullptr) value = Mul(value, Load(args.row_scales + n, mask));
      if (args.bias != nullptr) value = Add(value, Load(args.bias + n, mask));
      Store(args.y + (row + r) * args.y_stride + n, value, mask);
    }
  }
}

template <bool kBf16Inputs, bool kBf16Weights, int kRows, int kPanels>
void MultiplyTile(const LinearArgs& args, int64_t row, int64_t panel) {
  alignas(64) float sums[kRows * kPanels * kPanelRows] = {};
  constexpr int64_t kSumsStride = kPanels * kPanelRows;
  const uint8_t* panels[kPanels];
  for (int p = 0; p < kPanels; ++p)
    panels[p] = static_cast<const uint8_t*>(args.w) + (panel + p) * args.panel_bytes;
  if constexpr (!kBf16Inputs) {
    const float* x = static_cast<const float*>(args.x) + row * args.x_stride;
    AddProducts<kBf16Weights, kRows, kPanels>(x, args.x_stride, panels, args.cols, true, sums,
                                              kSumsStride);
  } else {
    alignas(64) float widened[kRows * kConvertBlock];
    const uint16_t* x = static_cast<const uint16_t*>(args.x) + row * args.x_stride;
    for (int64_t k = 0; k < args.cols; k += kConvertBlock) {
      const int64_t count = args.cols - k < kConvertBlock ? args.cols - k : kConvertBlock;
      for (int r = 0; r < kRows; ++r) {
        for (int64_t i = 0; i < count; i += kLanes) {
          Store(widened + r * kConvertBlock + i,
                LoadBf16(x + r * args.x_stride + k + i, FirstLanes(count - i)));
        }
      }
      AddProducts<kBf16Weights, kRows, kPanels>(widened, kConvertBlock, panels, count, k == 0, sums,
                                                kSumsStride);
      for (int p = 0; p < kPanels; ++p) panels[p] += count / 2 * 64;
    }
  }
  StoreTile<kRows, kPanels>(args, row, panel, sums);
}

template <bool kBf16Inputs, bool kBf16Weights, int kMaxRows, int kWidePanels>
inline void MultiplyRange(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                          int64_t panel_begin, int64_t panel_end) {
  ForEachTile<kMaxRows, kWidePanels>(row_begin, row_end, panel_begin, panel_end,
                                     [&]<int kRows, int kPanels>(int64_t row, int64_t panel) {
                                       MultiplyTile<kBf16Inputs, kBf16Weights, kRows, kPanels>(
                                           args, row, panel);
                                     });
}

}  // namespace
}  // namespace sluice::kernels
