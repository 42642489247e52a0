// A tile of a product with F32 multiply-adds: kRows rows of inputs by kPanels panels of weights.
// Uses the vector operations of a simd.h, which must be included first. Inputs are broadcast, the
// lanes are output rows, and every sum is one chain of fused multiply-adds over the inputs in
// ascending order.
#pragma once

#include <stdint.h>

namespace sluice::kernels {
namespace {

constexpr int kPanelRows = 16;
constexpr int kPanelVectors = kPanelRows / kLanes;

// The place from which a tile loads its sums for a segment, and to which it stores them.
template <int kRows, int kPanels>
struct TileSums {
  static constexpr int kVectors = kPanels * kPanelVectors;

  __attribute__((always_inline)) void Load(Floats (&acc)[kRows][kVectors]) const {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        acc[r][v] = starts ? Zero() : kernels::Load(sums + r * stride + v * kLanes);
    }
  }
  __attribute__((always_inline)) void Store(const Floats (&acc)[kRows][kVectors]) const {
    if (scales == nullptr) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v)
          kernels::Store(sums + r * stride + v * kLanes, acc[r][v]);
      }
      return;
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const Floats scale =
          kernels::Load(scales + v / kPanelVectors * panel_scales + v % kPanelVectors * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        float* total = totals + r * stride + v * kLanes;
        kernels::Store(total, MulAdd(acc[r][v], scale, kernels::Load(total)));
      }
    }
  }

  bool starts;  // whether sums start at zero instead of being loaded
  float* sums;  // row r, panel p: at sums + r * stride + 16 * p
  int64_t stride;
  // Not null at the end of a block with scales. Then sums * scales is added to `totals` (same
  // layout as `sums`), and the sums are not stored. The scales of consecutive panels are
  // panel_scales apart.
  const float* scales = nullptr;
  int64_t panel_scales = 0;
  float* totals = nullptr;
};

// Adds a tile's products of `count` inputs. panels[p]: where the inputs begin in panel p. `count`
// is even, except at the end of the row. ahead[p]: lines that are read next, for prefetching; only
// of BF16 weights.
template <bool kBf16Weights, int kRows, int kPanels, int kAhead = 0>
inline void AddProducts(const float* x, int64_t x_stride, const uint8_t* const (&panels)[kPanels],
                        int64_t count, const TileSums<kRows, kPanels>& sums,
                        [[maybe_unused]] const uint8_t* const* ahead = nullptr) {
  constexpr int kVectors = kPanels * kPanelVectors;
  constexpr int64_t kLineBytes = 64;  // a panel's line: 16 F32, or 16 pairs of BF16
  Floats acc[kRows][kVectors];
  sums.Load(acc);
  const auto line = [&](int64_t index, int v) __attribute__((always_inline)) {
    return panels[v / kPanelVectors] + index * kLineBytes + v % kPanelVectors * kLanes * 4;
  };
  // Keeps inputs or weights, whichever are fewer, in registers and streams the others.
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
#pragma GCC unroll 8
      for (int a = 0; a < kAhead; ++a) __builtin_prefetch(ahead[a] + i * kLineBytes);
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
  sums.Store(acc);
}

}  // namespace
}  // namespace sluice::kernels
