// Tests activation against double precision, for every instruction set.
#include "kernels/activation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/kernel_testing.h"

namespace sluice::kernels {
namespace {

double Expected(const ActivationRule& rule, double z) {
  switch (rule.kind) {
    case ActivationKind::kSilu: return z / (1 + std::exp(-double{rule.gain} * z));
    case ActivationKind::kGeluTanh:
      return z / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
    case ActivationKind::kQuickGelu: return z / (1 + std::exp(-1.702 * z));
    case ActivationKind::kRelu: return std::max(z, 0.0);
    case ActivationKind::kRelu2: return std::max(z, 0.0) * std::max(z, 0.0);
    case ActivationKind::kXielu: break;
  }
  return rule.beta * z + (z > 0 ? rule.alpha_p * z * z
                                : rule.alpha_n * (std::expm1(std::min(z, double{rule.eps})) - z));
}

constexpr ActivationRule kRules[] = {
    {ActivationKind::kSilu},
    {ActivationKind::kGeluTanh},
    {ActivationKind::kQuickGelu},
    {ActivationKind::kRelu},
    {ActivationKind::kRelu2},
    {ActivationKind::kXielu, 0, false, 0.8f, 0.7f, 0.5f, -1e-6f},
    {ActivationKind::kSilu, 1.5f},
    {ActivationKind::kSilu, 1.5f, true},
    {.kind = ActivationKind::kSilu,
     .limit = 1.5f,
     .limits_input = true,
     .gain = 1.7f,
     .factor_offset = 1},
};

class ActivationTest : public KernelTest {};
INSTANTIATE_KERNEL_TEST(ActivationTest);

TEST_P(ActivationTest, AgreesWithDoublePrecision) {
  Random random(11);
  ThreadPool pool1(1), pool3(3);
  for (const ActivationRule& rule : kRules) {
    for (const bool gated : {false, true}) {
      for (const int64_t width : {1, 15, 16, 17, 1000, 2500}) {
        const int64_t rows = 3, stride = gated ? 2 * width : width;
        std::vector<float> x = random.Normal(rows * stride, 4.0f);
        x[0] = 0;
        std::vector<float> y(static_cast<size_t>(rows * width)), alone = y;
        std::vector<BFloat16> y_bf16(y.size());
        Activate(pool3, rule, x.data(), rows, width, gated, y.data(), ElementType::kF32);
        Activate(pool1, rule, x.data() + stride, 1, width, gated, alone.data(), ElementType::kF32);
        Activate(pool3, rule, x.data(), rows, width, gated, y_bf16.data(), ElementType::kBF16);
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t i = 0; i < width; ++i) {
            const float* const from = x.data() + row * stride + i;
            const double limit = rule.limit > 0 ? rule.limit : 1e30;
            const double value = rule.limits_input ? Expected(rule, std::min<double>(*from, limit))
                                                   : std::min(Expected(rule, *from), limit);
            const double factor =
                gated ? std::clamp<double>(from[width], -limit, limit) + rule.factor_offset : 1;
            const float got = y[static_cast<size_t>(row * width + i)];
            ASSERT_NEAR(got, value * factor,
                        1e-6 * (1 + std::abs(factor) * (1 + std::abs(*from) + std::abs(value))))
                << "kind " << static_cast<int>(rule.kind) << " of " << *from;
            ASSERT_EQ(y_bf16[static_cast<size_t>(row * width + i)].bits,
                      sluice::ToBFloat16(got).bits);
            if (row == 1) {
              ASSERT_EQ(got, alone[static_cast<size_t>(i)]) << "of the row alone";
            }
          }
        }
      }
    }
  }
}

TEST_P(ActivationTest, LetsNanThrough) {
  ThreadPool pool(1);
  for (const ActivationRule& rule : kRules) {
    const std::vector<float> x(40, std::nanf(""));
    std::vector<float> y(20);
    Activate(pool, rule, x.data(), 1, 20, /*gated=*/true, y.data(), ElementType::kF32);
    for (const float value : y) EXPECT_TRUE(std::isnan(value)) << static_cast<int>(rule.kind);
  }
}

}  // namespace
}  // namespace sluice::kernels
