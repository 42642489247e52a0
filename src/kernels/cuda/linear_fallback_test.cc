// E4M3 inputs where tensor cores lack E4M3 (before compute capability 8.9): both operands become
// BF16. The emulated device has E4M3, so this product is asked for by name.
#include <cmath>

#include <gtest/gtest.h>

#include "device/emulated_queue.h"
#include "kernels/cuda/linear_testing.h"
#include "kernels/cuda/linear_tile.h"

namespace sluice::emulated::linear {
namespace {

using device::GroupScales;

template <int kTokens>
std::vector<float> Multiply(const device::WeightsSample& w, const device::InputSample& x,
                            int64_t m) {
  const device::Weights view = w.view();
  std::vector<float> y(static_cast<size_t>(m * view.n));
  const device::LinearArgs linear = {view,     x.data(),          x.type(), x.scales(), m,
                                     y.data(), ElementType::kF32, view.n,   nullptr,    nullptr};
  const LinearTileArgs args = {
      {linear, 0, 0, 0, 0, nullptr}, device::LinearSplitOf(view.n, view.k, view.type), nullptr};
  EmulatedQueue queue;
  LaunchFailure failure;
  LaunchTile<Format::kF8Inputs, kTokens, /*kMultipliesE4m3=*/false>({&queue, &failure}, args);
  queue.RunAll();
  return y;
}

TEST(LinearWithoutE4m3, EqualsSumsInDoublePrecision) {
  kernels::Random random(1);
  constexpr int64_t kN = 40, kK = 2080, kM = 20;
  const device::WeightsFormat format = {"f8_inputs", ElementType::kF8E4M3, GroupScales::kNone, 0, 0,
                                        true,        ElementType::kF8E4M3};
  const device::WeightsSample w(random, format, kN, kK);
  const device::InputSample x(random, ElementType::kF8E4M3, kM, kK);
  const std::vector<float> y = Multiply<16>(w, x, kM);
  for (int64_t m = 0; m < kM; ++m) {
    for (int64_t n = 0; n < kN; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < kK; ++k) {
        const double product = x.Value(m, k) * w.Number(n, k);
        sum += product;
        magnitude += std::abs(product);
      }
      const double scale = x.RowScale(m) * w.RowScale(n);
      ASSERT_NEAR(y[static_cast<size_t>(m * kN + n)], sum * scale,
                  magnitude * std::abs(scale) * (kK + 8) * 0x1p-24);
    }
  }
  EXPECT_EQ(Multiply<32>(w, x, kM), y);
}

}  // namespace
}  // namespace sluice::emulated::linear
