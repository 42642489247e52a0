// linear with 8-bit integers, in the vector operations of a simd.h and the dot product of the file
// that includes this:
//   Weights, WeightsOf(Words): four neighbouring weights of each row, made ready;
//   Inputs, InputsOf(uint32_t): four inputs for all rows, made ready;
//   Sums: a vector of 32-bit integers. Not Words, of which GCC 12 thinks as 64-bit integers: sums
//   that change their type at every step are kept on the stack;
//   Dot(sums, weights, inputs): 32-bit sums plus the products;
//   StartSums(x, cols): what the sums of a row of inputs begin with.
// The sums are exact, so their order does not matter.
#pragma once

#include "kernels/cpu/tiles_inl.h"
#include "kernels/kernel_table.h"

namespace sluice::kernels {
namespace {

constexpr int kI8PanelRows = 16;
constexpr int kI8PanelVectors = kI8PanelRows / kLanes;
constexpr int64_t kI8LineBytes = 64;  // four inputs of 16 rows
constexpr int64_t kI8BytesAhead = 2048;

template <int kRows, int kPanels>
void MultiplyI8Tile(const LinearArgs& args, int64_t row, int64_t panel) {
  constexpr int kVectors = kPanels * kI8PanelVectors;
  const uint8_t* panels[kPanels];
  for (int p = 0; p < kPanels; ++p)
    panels[p] = static_cast<const uint8_t*>(args.w) + (panel + p) * args.panel_bytes;
  const auto* x = static_cast<const int8_t*>(args.x) + row * args.x_stride;

  Sums sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Sums start = StartSums(x + r * args.x_stride, args.cols);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = start;
  }
  const auto add = [&](int64_t line, const auto& inputs_of) __attribute__((always_inline)) {
    Weights weights[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = WeightsOf(LoadWords(panels[v / kI8PanelVectors] + line * kI8LineBytes +
                                       v % kI8PanelVectors * kLanes * 4));
    }
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      __builtin_prefetch(panels[p] + line * kI8LineBytes + kI8BytesAhead);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Inputs inputs = InputsOf(inputs_of(x + r * args.x_stride + line * 4));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Dot(sums[r][v], weights[v], inputs);
    }
  };
  const int64_t lines = args.cols / 4;
  for (int64_t line = 0; line < lines; ++line) {
    add(line, [](const int8_t* from) {
      uint32_t word;
      __builtin_memcpy(&word, from, 4);
      return word;
    });
  }
  if (const int64_t rest = args.cols % 4; rest != 0) {
    add(lines, [&](const int8_t* from) {
      uint32_t word = 0;
      __builtin_memcpy(&word, from, static_cast<size_t>(rest));
      return word;
    });
  }

#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const int64_t n = panel * kI8PanelRows + v * kLanes;
    if (n >= args.outputs) break;
    const Mask mask = FirstLanes(args.outputs - n);
    const Floats row_scales = Load(args.row_scales + n, mask);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      Floats value = Mul(ToFloats((Words)sums[r][v]), row_scales);
      value = Mul(value, Set(args.x_scales[row + r]));
      if (args.bias != nullptr) value = Add(value, Load(args.bias + n, mask));
      Store(args.y + (row + r) * args.y_stride + n, value, mask);
    }
  }
}

template <int kMaxRows, int kWidePanels>
inline void MultiplyI8Range(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                            int64_t panel_begin, int64_t panel_end) {
  ForEachTile<kMaxRows, kWidePanels>(row_begin, row_end, panel_begin, panel_end,
                                     [&]<int kRows, int kPanels>(int64_t row, int64_t panel) {
                                       MultiplyI8Tile<kRows, kPanels>(args, row, panel);
                                     });
}

}  // namespace
}  // namespace sluice::kernels
