#include "kernels/split_rows.h"

#include <cmath>

#include "kernels/kernel_testing.h"

namespace sluice::kernels {
namespace {

TEST(SplitRowsTest, TheHalvesHoldSixteenBits) {
  Random random(1);
  ThreadPool pool(3);
  const int64_t rows = 5, cols = 3000, stride = 3010;
  std::vector<float> x = random.Normal(rows * stride, 3.0f);
  x[7] = 0;
  std::vector<BFloat16> halves(static_cast<size_t>(2 * rows * cols));
  SplitRows(
      pool,
      {.data = x.data(), .type = ElementType::kF32, .rows = rows, .cols = cols, .stride = stride},
      halves.data());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < cols; ++k) {
      const float value = x[static_cast<size_t>(i * stride + k)];
      const BFloat16 high = halves[static_cast<size_t>(2 * i * cols + k)];
      const float low = ToFloat(halves[static_cast<size_t>((2 * i + 1) * cols + k)]);
      ASSERT_EQ(high.bits, sluice::ToBFloat16(value).bits);
      ASSERT_LE(std::abs(value - (ToFloat(high) + low)), std::abs(value) * 0x1p-17f);
    }
  }
}

TEST(AddPairsTest, AddsNeighboursAndTheBias) {
  Random random(2);
  ThreadPool pool(2);
  const int64_t rows = 4, cols = 2500, stride = 2600;
  const std::vector<float> pairs = random.Normal(2 * rows * cols), bias = random.Normal(cols);
  for (const float* added : {static_cast<const float*>(nullptr), bias.data()}) {
    std::vector<float> y(static_cast<size_t>(rows * stride), -1.0f);
    AddPairs(pool, pairs.data(), added, rows, cols, y.data(), stride);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t n = 0; n < stride; ++n) {
        const size_t at = static_cast<size_t>(2 * i * cols + n);
        const float expected = n >= cols ? -1.0f
                               : added
                                   ? pairs[at] + pairs[at + static_cast<size_t>(cols)] + added[n]
                                   : pairs[at] + pairs[at + static_cast<size_t>(cols)];
        ASSERT_EQ(y[static_cast<size_t>(i * stride + n)], expected);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels
