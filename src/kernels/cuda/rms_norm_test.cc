#include "kernels/rms_norm.h"

#include <cmath>

#include "kernels/cuda/device_kernel_testing.h"

namespace sluice::emulated {
namespace {

// Sizes of whole vectors, of models' hidden layers, with a tail, and of several vectors a thread.
constexpr int64_t kCols[] = {1, 7, 64, 96, 100, 128, 2048, 4104, 8192, 12288, 16392};

// The squares of a row are added in F32: 8 a vector of a thread, then 10 levels of lanes and warps.
// Half of their error goes into the factor; the rest are its own roundings and those of the
// products.
float RelativeError(int64_t cols) {
  const int64_t vectors = (cols + 512 * 8 - 1) / (512 * 8);
  return (static_cast<float>(vectors * 8 + 11) / 2 + 5) * 0x1p-24f;
}

TEST(DeviceRmsNorm, AgreesWithTheCpu) {
  kernels::SelectIsa(kernels::Isa::kReference);
  kernels::Random random(1);
  ThreadPool pool(1);
  for (const int64_t cols : kCols) {
    const int64_t rows = cols > 4000 ? 2 : 5;
    const std::vector<float> x = random.Normal(rows * cols, 3.0f), weight = random.Normal(cols);
    std::vector<float> residual;
    const std::vector<float> y = ExpectRoundedRows(
        rows, cols,
        [&](const StreamHandle& stream, int64_t first, int64_t count, const device::RowsOut& out) {
          residual = x;
          LaunchRmsNorm(stream, {.residual = residual.data() + first * cols,
                                 .delta = nullptr,
                                 .delta_type = ElementType::kF32,
                                 .weight = weight.data(),
                                 .eps = 1e-5f,
                                 .rows = count,
                                 .cols = cols,
                                 .out = out,
                                 .out_f32 = nullptr});
        });
    EXPECT_EQ(residual, x);
    std::vector<float> expected(x.size());
    kernels::RmsNorm(pool, x.data(), cols, weight.data(), 1e-5f, rows, cols, expected.data(),
                     ElementType::kF32);
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(y[i], expected[i], std::abs(expected[i]) * RelativeError(cols)) << cols;
  }
}

TEST(DeviceRmsNorm, AddsTheResidualAndKeepsAnF32Copy) {
  kernels::SelectIsa(kernels::Isa::kReference);
  kernels::Random random(2);
  ThreadPool pool(1);
  for (const int64_t cols : {36, 96, 2048, 8192}) {
    for (const bool is_bf16 : {false, true}) {
      const int64_t rows = 3;
      const std::vector<float> x = random.Normal(rows * cols), weight = random.Normal(cols);
      const std::vector<float> delta = kernels::Rounded(random.Normal(rows * cols));
      const std::vector<BFloat16> delta_bf16 = kernels::ToBFloat16(delta);
      std::vector<float> residual, copy(x.size());
      const std::vector<float> y = ExpectRoundedRows(
          rows, cols,
          [&](const StreamHandle& stream, int64_t first, int64_t count,
              const device::RowsOut& out) {
            residual = x;
            const void* delta_rows =
                is_bf16 ? static_cast<const void*>(delta_bf16.data() + first * cols)
                        : delta.data() + first * cols;
            LaunchRmsNorm(stream, {.residual = residual.data() + first * cols,
                                   .delta = delta_rows,
                                   .delta_type = is_bf16 ? ElementType::kBF16 : ElementType::kF32,
                                   .weight = weight.data(),
                                   .eps = 1e-6f,
                                   .rows = count,
                                   .cols = cols,
                                   .out = out,
                                   .out_f32 = copy.data() + first * cols});
          });
      EXPECT_EQ(copy, y);
      std::vector<float> sums = x, expected(x.size());
      kernels::AddRmsNorm(pool, sums.data(), delta.data(), weight.data(), 1e-6f, rows, cols,
                          expected.data(), ElementType::kF32);
      EXPECT_EQ(residual, sums);
      for (size_t i = 0; i < y.size(); ++i)
        ASSERT_NEAR(y[i], expected[i], std::abs(expected[i]) * RelativeError(cols)) << cols;
    }
  }
}

TEST(DeviceRmsNorm, RowsOfZerosHaveScaleOne) {
  const int64_t cols = 64;
  std::vector<float> x(cols), weight(cols, 1.0f), scale(1);
  std::vector<uint8_t> codes(cols, 0xFF);
  RunEmulated(emulator::Order::kForward, [&](const StreamHandle& stream) {
    LaunchRmsNorm(stream, {.residual = x.data(),
                           .delta = nullptr,
                           .delta_type = ElementType::kF32,
                           .weight = weight.data(),
                           .eps = 1e-6f,
                           .rows = 1,
                           .cols = cols,
                           .out = {.data = codes.data(),
                                   .type = ElementType::kF8E4M3,
                                   .scales = scale.data(),
                                   .row_scale = device::RowScale::kPerToken},
                           .out_f32 = nullptr});
  });
  EXPECT_EQ(scale[0], 1.0f);
  EXPECT_EQ(codes, std::vector<uint8_t>(cols, 0));
}

}  // namespace
}  // namespace sluice::emulated
