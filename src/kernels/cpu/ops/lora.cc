#include "kernels/cpu/ops/ops.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

constexpr int kTile = 16;  // kLoraTile
constexpr int kVectors = kTile / kLanes;
// Number of rows whose sums fit in the registers.
constexpr int kRowsAtOnce = kLanes == 16 ? 4 : 2;

struct TwoRows {
  Floats first, second;
};

// [pairs][width][2] BF16.
struct Bf16Pairs {
  const uint32_t* data;
  int64_t width;
  template <typename Lanes>
  TwoRows At(int64_t pair, int64_t col, Lanes lanes) const {
    const Words words = LoadWords(data + pair * width + col, lanes);
    return {FirstOfPair(words), SecondOfPair(words)};
  }
};

// [2 * pairs][width] F32.
struct F32Pairs {
  const float* data;
  int64_t width;
  template <typename Lanes>
  TwoRows At(int64_t pair, int64_t col, Lanes lanes) const {
    const float* first = data + 2 * pair * width + col;
    return {Load(first, lanes), Load(first + width, lanes)};
  }
};

template <int kRows, typename Pairs>
void ShrinkRows(const float* x, int64_t x_stride, int64_t pairs, const Pairs& a, float* h,
                int64_t h_stride) {
  Floats even[kRows][kVectors], odd[kRows][kVectors];
  for (int m = 0; m < kRows; ++m) {
    for (int v = 0; v < kVectors; ++v) {
      even[m][v] = Load(h + m * h_stride + v * kLanes);
      odd[m][v] = Zero();
    }
  }
  for (int64_t pair = 0; pair < pairs; ++pair) {
    for (int v = 0; v < kVectors; ++v) {
      const TwoRows weights = a.At(pair, v * kLanes, AllLanes());
      for (int m = 0; m < kRows; ++m) {
        const float* inputs = x + m * x_stride + 2 * pair;
        even[m][v] = MulAdd(Set(inputs[0]), weights.first, even[m][v]);
        odd[m][v] = MulAdd(Set(inputs[1]), weights.second, odd[m][v]);
      }
    }
  }
  for (int m = 0; m < kRows; ++m) {
    for (int v = 0; v < kVectors; ++v)
      Store(h + m * h_stride + v * kLanes, Add(even[m][v], odd[m][v]));
  }
}

// Without the unroll pragmas, the compiler keeps the sums in memory.
template <int kRows, typename Pairs, typename Lanes>
void ExpandVector(const float* h, int64_t h_stride, int64_t pairs, const Pairs& b, int64_t i,
                  Lanes lanes, float scale, float* const* y) {
  Floats even[kRows], odd[kRows];
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m) even[m] = odd[m] = Zero();
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const TwoRows weights = b.At(pair, i, lanes);
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
      const float* inputs = h + m * h_stride + 2 * pair;
      even[m] = MulAdd(Set(inputs[0]), weights.first, even[m]);
      odd[m] = MulAdd(Set(inputs[1]), weights.second, odd[m]);
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m) {
    const Floats old = Load(y[m] + i, lanes);
    Store(y[m] + i, MulAdd(Set(scale), Add(even[m], odd[m]), old), lanes);
  }
}

template <int kRows, typename Pairs>
void ExpandRows(const float* h, int64_t h_stride, int64_t pairs, const Pairs& b, int64_t cols,
                float scale, float* const* y) {
  ForEachVector(cols, [&](int64_t i, auto lanes) {
    ExpandVector<kRows>(h, h_stride, pairs, b, i, lanes, scale, y);
  });
}

// Calls `body` for blocks of up to kRowsAtOnce rows, with the number of rows as a constant.
template <int kRows>
struct Rows {
  static constexpr int kCount = kRows;
};
template <typename Body>
void ForRowBlocks(int64_t rows, const Body& body) {
  int64_t row = 0;
  for (; row + kRowsAtOnce <= rows; row += kRowsAtOnce) body(row, Rows<kRowsAtOnce>());
  if constexpr (kRowsAtOnce == 4) {
    if (rows - row == 3) return body(row, Rows<3>());
    if (rows - row == 2) return body(row, Rows<2>());
  }
  if (rows - row == 1) body(row, Rows<1>());
}

}  // namespace

void LoraShrinkTile(const float* x, int64_t rows, int64_t x_stride, int64_t pairs, const void* a,
                    bool bf16, float* h, int64_t h_stride) {
  ForRowBlocks(rows, [&](int64_t row, auto block) {
    const auto shrink = [&](const auto& weights) {
      ShrinkRows<decltype(block)::kCount>(x + row * x_stride, x_stride, pairs, weights,
                                          h + row * h_stride, h_stride);
    };
    if (bf16)
      shrink(Bf16Pairs{static_cast<const uint32_t*>(a), kTile});
    else
      shrink(F32Pairs{static_cast<const float*>(a), kTile});
  });
}

void LoraExpandTile(const float* h, int64_t h_stride, int64_t rows, int64_t pairs, const void* b,
                    bool bf16, int64_t b_width, int64_t cols, float scale, float* const* y) {
  ForRowBlocks(rows, [&](int64_t row, auto block) {
    const auto expand = [&](const auto& weights) {
      ExpandRows<decltype(block)::kCount>(h + row * h_stride, h_stride, pairs, weights, cols, scale,
                                          y + row);
    };
    if (bf16)
      expand(Bf16Pairs{static_cast<const uint32_t*>(b), b_width});
    else
      expand(F32Pairs{static_cast<const float*>(b), b_width});
  });
}

}  // namespace sluice::kernels::SLUICE_ISA
