// Kernels that go over rows: embedding, take_rows, convert_rows and silu_mul.
#include <cmath>
#include <limits>

#include "kernels/cuda/device_kernel_testing.h"
#include "kernels/silu_mul.h"

namespace sluice::emulated {
namespace {

TEST(DeviceEmbedding, TakesRowsOfTheTable) {
  kernels::Random random(1);
  for (const int64_t cols : {1, 33, 64, 96, 2056}) {
    const std::vector<BFloat16> table = kernels::ToBFloat16(random.Normal(11 * cols));
    const std::vector<int32_t> tokens = {10, 0, 3, 3, 7};
    const auto out =
        ResultOfBothOrders<float>(5 * cols, -1, [&](const StreamHandle& stream, float* rows) {
          LaunchEmbedding(stream, {.tokens = tokens.data(),
                                   .table = reinterpret_cast<const uint16_t*>(table.data()),
                                   .rows = 5,
                                   .cols = cols,
                                   .out = rows});
        });
    for (int64_t i = 0; i < 5; ++i) {
      for (int64_t k = 0; k < cols; ++k)
        ASSERT_EQ(out[i * cols + k], ToFloat(table[tokens[i] * cols + k]));
    }
  }
}

TEST(DeviceTakeRows, CopiesBytes) {
  kernels::Random random(2);
  for (const int64_t pieces : {1, 5, 300}) {
    const int64_t width = pieces * 4;  // of 16 bytes
    const std::vector<float> in = random.Normal(9 * width);
    const std::vector<int32_t> indices = {8, 1, 1, 0};
    const auto out =
        ResultOfBothOrders<float>(4 * width, -1, [&](const StreamHandle& stream, float* rows) {
          LaunchTakeRows(stream, {.in = in.data(),
                                  .indices = indices.data(),
                                  .rows = 4,
                                  .row_bytes = pieces * 16,
                                  .out = rows});
        });
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t k = 0; k < width; ++k) ASSERT_EQ(out[i * width + k], in[indices[i] * width + k]);
    }
  }
}

TEST(DeviceConvertRows, RoundsAsTheCpu) {
  kernels::Random random(3);
  for (const int64_t cols : {1, 20, 64, 96, 1000, 4104}) {
    const int64_t rows = 4;
    std::vector<float> x = random.Normal(rows * cols, 5.0f);
    x[0] = 1e30f;  // beyond what a static scale can hold
    std::fill_n(x.begin() + cols, cols, 0.0f);
    const std::vector<float> rounded = kernels::Rounded(x);
    const std::vector<BFloat16> bf16 = kernels::ToBFloat16(x);
    for (const bool is_bf16 : {false, true}) {
      const std::vector<float> out = ExpectRoundedRows(
          rows, cols,
          [&](const StreamHandle& stream, int64_t first, int64_t count, const device::RowsOut& to) {
            const void* from = is_bf16 ? static_cast<const void*>(bf16.data() + first * cols)
                                       : x.data() + first * cols;
            LaunchConvertRows(stream, {.x = from,
                                       .x_type = is_bf16 ? ElementType::kBF16 : ElementType::kF32,
                                       .rows = count,
                                       .cols = cols,
                                       .out = to});
          });
      EXPECT_EQ(out, is_bf16 ? rounded : x);
    }
  }
}

// Numbers that no scale can help: a row with a NaN or an infinity must not pass for a finite one.
TEST(DeviceConvertRows, KeepsNanVisible) {
  const int64_t cols = 16;
  std::vector<float> x(2 * cols, 1.0f);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  x[cols + 5] = -std::numeric_limits<float>::infinity();
  ExpectRoundedRows(
      2, cols,
      [&](const StreamHandle& stream, int64_t first, int64_t count, const device::RowsOut& to) {
        LaunchConvertRows(stream, {.x = x.data() + first * cols,
                                   .x_type = ElementType::kF32,
                                   .rows = count,
                                   .cols = cols,
                                   .out = to});
      });
}

// Addresses that allow no wide loads give the same numbers.
TEST(DeviceConvertRows, TakesUnalignedRows) {
  kernels::Random random(4);
  const int64_t cols = 64;
  const std::vector<float> x = random.Normal(3 * cols + 1);
  std::vector<uint16_t> out(3 * cols + 1), aligned(3 * cols);
  RunEmulated(emulator::Order::kForward, [&](const StreamHandle& stream) {
    LaunchConvertRows(stream, {.x = x.data() + 1,
                               .x_type = ElementType::kF32,
                               .rows = 3,
                               .cols = cols,
                               .out = {.data = out.data() + 1, .type = ElementType::kBF16}});
  });
  for (int64_t i = 0; i < 3 * cols; ++i) EXPECT_EQ(out[i + 1], ToBFloat16(x[i + 1]).bits);
}

TEST(DeviceSiluMul, AgreesWithTheCpu) {
  kernels::SelectIsa(kernels::Isa::kReference);
  kernels::Random random(5);
  ThreadPool pool(1);
  for (const int64_t width : {1, 20, 64, 96, 352, 2056, 6144}) {
    const int64_t rows = width > 4000 ? 2 : 4;
    std::vector<float> x = random.Normal(rows * 2 * width, 4.0f);
    if (width > 10) x[1] = 200.0f, x[2] = -200.0f, x[3] = 0.0f;
    for (const bool is_bf16 : {false, true}) {
      if (is_bf16) x = kernels::Rounded(x);
      const std::vector<BFloat16> bf16 = kernels::ToBFloat16(x);
      const std::vector<float> y = ExpectRoundedRows(
          rows, width,
          [&](const StreamHandle& stream, int64_t first, int64_t count,
              const device::RowsOut& out) {
            const void* from = is_bf16 ? static_cast<const void*>(bf16.data() + first * 2 * width)
                                       : x.data() + first * 2 * width;
            LaunchSiluMul(stream, {.x = from,
                                   .x_type = is_bf16 ? ElementType::kBF16 : ElementType::kF32,
                                   .rows = count,
                                   .width = width,
                                   .out = out});
          });
      std::vector<float> expected(y.size());
      kernels::SiluMul(pool, x.data(), rows, width, expected.data(), ElementType::kF32);
      // One exponential and four roundings.
      for (size_t i = 0; i < y.size(); ++i)
        ASSERT_NEAR(y[i], expected[i], std::abs(expected[i]) * 8 * 0x1p-24f) << width;
    }
  }
}

}  // namespace
}  // namespace sluice::emulated
