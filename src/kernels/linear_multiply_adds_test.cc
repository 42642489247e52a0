// Tests that products by F32 multiply-adds are bit-identical to products by BF16 dot products.
#include <algorithm>
#include <cstring>
#include <limits>

#include "base/thread_pool.h"
#include "kernels/cpu/tables.h"
#include "kernels/grouped_linear.h"
#include "kernels/linear.h"
#include "kernels/linear_unit.h"
#include "kernels/stored_matrix_testing.h"

#if defined(__x86_64__)

namespace sluice::kernels {
namespace {

constexpr int64_t kRows = 100;  // more rows than a chunk
constexpr int64_t kOutputs = 70;

// Random BF16 numbers whose exponent fields are between `low` and `high`; 0: subnormal or zero.
std::vector<BFloat16> NumbersOf(Random& random, int64_t count, int low, int high) {
  std::vector<BFloat16> numbers;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t bits =
        random.Integer(0, 1) << 15 | random.Integer(low, high) << 7 | random.Integer(0, 127);
    numbers.push_back({static_cast<uint16_t>(bits)});
  }
  return numbers;
}

class LinearMultiplyAddsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<Isa> isas = AvailableIsas();
    if (std::ranges::find(isas, Isa::kAvx512Bf16) == isas.end())
      GTEST_SKIP() << "this machine has no BF16 dot products";
    SelectIsa(Isa::kAvx512Bf16);
  }
  void TearDown() override { ASSERT_TRUE(SelectIsa("auto").has_value()); }

  // Multiplies by both functions, and expects bit-identical results.
  void ExpectSameBits(const PackedMatrix& w, int64_t cols) {
    // About half of the small inputs, and many of their products and sums, are subnormal.
    std::vector<BFloat16> x = NumbersOf(random_, kRows * cols, 0, 1);
    const std::vector<BFloat16> usual = NumbersOf(random_, kRows / 2 * cols, 100, 130);
    std::ranges::copy(usual, x.begin());
    for (int64_t rows : {16, 17, 23, 48, 100}) {
      const Activations inputs{x.data(), ElementType::kBF16, rows, cols, cols};
      const LinearPlan plan = PlanLinear(w, inputs);
      if (plan.block_inputs != 0 && !plan.folds_blocks) return;  // unsupported format
      const auto multiply = [&](LinearFunction* function) {
        std::vector<float> y(static_cast<size_t>(rows * kOutputs),
                             std::numeric_limits<float>::quiet_NaN());
        LinearArgs args = LinearArgsOf(plan, w, inputs, y.data(), kOutputs, nullptr);
        function(args, 0, rows, 0, 4);
        function(args, 0, rows, 4, (kOutputs + 15) / 16);
        return y;
      };
      const std::vector<float> expected = multiply(kAvx512Bf16Kernels.linear_bf16);
      const std::vector<float> actual = multiply(kAvx512SlowBf16Kernels.linear_bf16);
      EXPECT_EQ(std::memcmp(expected.data(), actual.data(), expected.size() * sizeof(float)), 0)
          << rows << " rows of " << cols << " inputs";
    }
  }

  Random random_{7};
  ThreadPool pool_{1};
};

TEST_F(LinearMultiplyAddsTest, OfBf16HaveTheBitsOfDotProducts) {
  DataFormat format;
  format.type = ElementType::kBF16;
  for (int64_t cols : {2, 31, 64, 255, 384, 401}) {
    const std::vector<BFloat16> w = NumbersOf(random_, kOutputs * cols, 100, 130);
    PackedMatrix matrix = *AllocatePacked(format, kOutputs, cols, "test");
    PackRows(pool_, matrix, 0, PlainMatrix(w.data(), ElementType::kBF16, kOutputs, cols), 0,
             kOutputs);
    ExpectSameBits(matrix, cols);
  }
}

TEST_F(LinearMultiplyAddsTest, OfCodesHaveTheBitsOfDotProducts) {
  for (const auto& [name, format, col_multiple] : NarrowFormats()) {
    for (int64_t cols : {384, 768}) {  // multiples of all formats' groups
      const StoredSample sample = StoredSample::Make(random_, format, kOutputs, cols);
      PackedMatrix matrix = *AllocatePacked(format, kOutputs, cols, "test");
      PackRows(pool_, matrix, 0, sample.view(), 0, kOutputs);
      ExpectSameBits(matrix, cols);
    }
  }
}

}  // namespace
}  // namespace sluice::kernels

#endif
