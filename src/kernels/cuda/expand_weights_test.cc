// Weights as BF16, and the scales of results, on the emulated device.
#include <cmath>

#include <gtest/gtest.h>

#include "device/emulated_queue.h"
#include "kernels/cuda/linear_testing.h"

namespace sluice::device {
namespace {

struct Stream {
  EmulatedQueue queue;
  LaunchFailure failure;
  StreamHandle handle{&queue, &failure};
};

class ExpandWeights : public testing::TestWithParam<WeightsFormat> {};

INSTANTIATE_TEST_SUITE_P(Formats, ExpandWeights, testing::ValuesIn(AllWeightsFormats()),
                         [](const auto& info) { return info.param.name; });

TEST_P(ExpandWeights, GivesTheValuesOfSomeRows) {
  kernels::Random random(1);
  constexpr int64_t kN = 37, kK = 160, kFirst = 9, kRows = 20;
  const WeightsSample w(random, GetParam(), kN, kK);
  for (const bool scales_rows : {false, true}) {
    Weights view = w.view();
    if (!scales_rows) view.row_scales = nullptr;
    std::vector<BFloat16> out((kRows + 1) * kK, sluice::ToBFloat16(77.0f));
    Stream stream;
    emulated::LaunchExpandWeights(stream.handle,
                                  {view, kFirst, kRows, reinterpret_cast<uint16_t*>(out.data())});
    stream.queue.RunAll();
    // Two products in F32 and a rounding to BF16; but for blocks, none rounds without scales of
    // rows.
    const bool is_exact = !scales_rows && GetParam().group_type != GroupScales::kBlock;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t k = 0; k < kK; ++k) {
        const double expected =
            w.Number(kFirst + row, k) * (scales_rows ? w.RowScale(kFirst + row) : 1);
        const float actual = ToFloat(out[static_cast<size_t>(row * kK + k)]);
        const double tolerance = is_exact ? 0 : std::abs(expected) * (0x1p-8 + 0x1p-22);
        ASSERT_NEAR(actual, expected, tolerance) << row << ", " << k;
      }
    }
    EXPECT_EQ(ToFloat(out[kRows * kK]), 77.0f);
  }
}

TEST(ScaleResults, MultipliesAndAdds) {
  kernels::Random random(2);
  constexpr int64_t kM = 5, kN = 300, kStride = 310;
  const auto row_scales = random.Normal(kN), x_scales = random.Normal(kM), bias = random.Normal(kN);
  const std::vector<float> before = kernels::Rounded(random.Normal(kM * kStride));
  for (int which = 0; which < 8; ++which) {
    for (const bool bf16 : {false, true}) {
      std::vector<float> wide = before;
      std::vector<BFloat16> narrow = kernels::ToBFloat16(before);
      Stream stream;
      emulated::LaunchScaleResults(
          stream.handle,
          {bf16 ? static_cast<void*>(narrow.data()) : wide.data(),
           bf16 ? ElementType::kBF16 : ElementType::kF32, kM, kN, kStride,
           which & 1 ? row_scales.data() : nullptr, which & 2 ? x_scales.data() : nullptr,
           which & 4 ? bias.data() : nullptr});
      stream.queue.RunAll();
      for (size_t m = 0; m < kM; ++m) {
        for (size_t n = 0; n < kStride; ++n) {
          const float old = before[m * kStride + n];
          const float actual = bf16 ? ToFloat(narrow[m * kStride + n]) : wide[m * kStride + n];
          if (n >= kN) {
            ASSERT_EQ(actual, old);
            continue;
          }
          const double product = static_cast<double>(old) * (which & 1 ? row_scales[n] : 1) *
                                 (which & 2 ? x_scales[m] : 1);
          const double expected = product + (which & 4 ? bias[n] : 0);
          const double tolerance =
              std::abs(product) * 0x1p-23 + std::abs(expected) * (bf16 ? 0x1.01p-8 : 0x1p-24);
          ASSERT_NEAR(actual, expected, tolerance) << which << " " << m << " " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::device
