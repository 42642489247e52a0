// Tests E4M3 inputs on tensor cores without E4M3 (before compute capability 8.9), where both
// operands are converted to BF16. The emulated device supports E4M3, so the test launches that
// kernel directly.
#include <gtest/gtest.h>

#include "kernels/cuda/checks/products.h"
#include "kernels/cuda/linear_tile.h"

namespace sluice::emulated::linear {
namespace {

using checks::CaseMemory;
using checks::Comparison;
using checks::DeviceUnderTest;
using checks::NumberKind;
using checks::ProductOutput;
using checks::TestInputs;
using checks::TestWeights;
using checks::WeightFormat;

template <int kTokens>
ProductOutput Multiply(CaseMemory& memory, const device::Weights& w, const TestInputs& x,
                       int64_t m) {
  ProductOutput y(memory, ElementType::kF32, m, w.n, w.n);
  device::LinearArgs linear = checks::LinearArgsOf(w, x, 0, m);
  linear.y = y.data();
  linear.y_type = ElementType::kF32;
  linear.y_stride = w.n;
  const LinearTileArgs args = {{linear, 0, 0, 0, 0, nullptr}, device::LinearSplitOf(w), nullptr};
  LaunchTile<Format::kF8Inputs, kTokens, /*kMultipliesE4m3=*/false>(memory.device().handle(), args);
  y.Read();
  return y;
}

TEST(LinearWithoutE4m3, MultipliesAsBf16) {
  constexpr int64_t kN = 40, kK = 2080, kM = 20;
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  const WeightFormat format = {
      .name = "", .type = ElementType::kF8E4M3, .has_row_scales = true, .e4m3_inputs = true};
  for (const NumberKind kind : {NumberKind::kIntegers, NumberKind::kFree}) {
    CaseMemory memory(*device);
    Comparison comparison;
    const TestWeights weights(format, kind, 1, kN, kK);
    const TestInputs x = MakeInputs(memory, format, kind, kM, kK);
    const device::Weights w = weights.Upload(memory);
    const ProductOutput y = Multiply<16>(memory, w, x, kM), wide = Multiply<32>(memory, w, x, kM);
    ASSERT_TRUE(memory.ok()) << memory.status().error().message;
    const std::vector<float> no_bias;
    const checks::ProductRows rows{weights, 0, x, kK, no_bias, kind, /*e4m3_inputs=*/false};
    const checks::SampledPlaces places(kM, kN);
    for (const int64_t n : places.columns()) {
      rows.ForColumn(*device, n, places.rows(), [&](int64_t m, double expected, double error) {
        y.Compare(m, n, expected, error, comparison);
        comparison.AddEqual(wide.BitsAt(m, n), y.BitsAt(m, n));
      });
    }
    EXPECT_TRUE(comparison.passed()) << comparison.first_failure();
  }
}

}  // namespace
}  // namespace sluice::emulated::linear
