// Tests that products of E4M3 codes by subnormal F32 numbers are bit-identical to those by normal
// numbers, also for codes and inputs that they cannot multiply themselves.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/thread_pool.h"
#include "hardware/cpu_features.h"
#include "kernels/cpu/avx2/kernels.h"
#include "kernels/cpu/tables.h"
#include "kernels/linear.h"
#include "kernels/linear_unit.h"
#include "kernels/stored_matrix_testing.h"

#if defined(__x86_64__)

namespace sluice::kernels {
namespace {

constexpr int64_t kRows = 16;  // one more than the codes of few rows
constexpr int64_t kOutputs = 16 * 14 + 3;

class LinearSubnormalsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!DetectCpuFeatures().avx2) GTEST_SKIP() << "this machine has no AVX2";
    SelectIsa(Isa::kAvx2);
  }
  void TearDown() override { ASSERT_TRUE(SelectIsa("auto").has_value()); }

  // Multiplies by both functions, and by the one that expands all codes first, and expects the same
  // bits, or NaN.
  void ExpectSameBits(const StoredSample& sample, const DataFormat& format, int64_t cols,
                      const std::vector<BFloat16>& x) {
    PackedMatrix w = *AllocatePacked(format, kOutputs, cols, "test");
    PackRows(pool_, w, 0, sample.view(), 0, kOutputs);
    for (int64_t rows = 1; rows <= kRows; ++rows) {
      const Activations inputs{x.data(), ElementType::kBF16, rows, cols, cols};
      const LinearPlan plan = PlanLinear(w, inputs);
      const auto multiply = [&](LinearFunction* function, int64_t panels) {
        std::vector<float> y(static_cast<size_t>(rows * kOutputs), -1.0f);
        LinearArgs args = LinearArgsOf(plan, w, inputs, y.data(), kOutputs, nullptr);
        const int64_t end = (kOutputs + 15) / 16;
        for (int64_t panel = 0; panel < end; panel += panels)
          function(args, 0, rows, panel, std::min(panel + panels, end));
        return y;
      };
      const std::vector<float> expected = multiply(avx2::LinearBf16Segments, 3);
      const std::vector<float> normal = multiply(kAvx2Kernels.linear_bf16, 3);
      const std::vector<float> subnormal =
          multiply(kAvx2SubnormalsKernels.linear_bf16, kAvx2Kernels.few_rows_panels);
      for (size_t i = 0; i < expected.size(); ++i) {
        const auto same = [&](float value) {
          return std::isnan(expected[i])
                     ? std::isnan(value)
                     : std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(expected[i]);
        };
        ASSERT_TRUE(same(normal[i])) << rows << " rows, element " << i;
        ASSERT_TRUE(same(subnormal[i])) << rows << " rows, element " << i;
      }
    }
  }

  // Returns kRows rows of inputs with standard deviation 1, times 2^exponent in one row.
  std::vector<BFloat16> InputsWith(int64_t cols, int64_t row, int exponent) {
    std::vector<float> x = random_.Normal(kRows * cols);
    for (int64_t i = 0; i < cols; ++i) {
      float& value = x[static_cast<size_t>(row * cols + i)];
      value = std::ldexp(value, exponent);
    }
    return ToBFloat16(x);
  }

  Random random_{5};
  ThreadPool pool_{1};
};

TEST_F(LinearSubnormalsTest, OfAllCodesAndInputsHaveTheBitsOfNormalNumbers) {
  for (const auto& [name, format, col_multiple] : NarrowFormats()) {
    if (format.type != ElementType::kF8E4M3) continue;
    for (int64_t cols : {384, 640}) {
      StoredSample sample = StoredSample::Make(random_, format, kOutputs, cols);
      for (int64_t k = 0; k < 256; ++k) {
        if ((k & 0x7F) != 0x7F) sample.SetCode(9, k, static_cast<int>(k));
      }
      for (int exponent : {0, -50, -80, -130, 20, 30, 100})
        ExpectSameBits(sample, format, cols, InputsWith(cols, exponent == 0 ? 0 : 2, exponent));
      // The first segment's sums are tiny, and the other segments add nothing.
      std::vector<BFloat16> tiny = InputsWith(cols, 0, -118);
      std::fill(tiny.begin() + 256, tiny.begin() + cols, BFloat16{});
      ExpectSameBits(sample, format, cols, tiny);
      std::vector<BFloat16> infinite = InputsWith(cols, 0, 0);
      infinite[300] = {0x7F80};
      ExpectSameBits(sample, format, cols, infinite);
      sample.SetCode(20, 5, 0xFF);  // NaN
      sample.SetCode(200, 383, 0x7F);
      ExpectSameBits(sample, format, cols, InputsWith(cols, 0, 0));
    }
  }
}

}  // namespace
}  // namespace sluice::kernels

#endif
