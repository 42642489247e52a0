// Tests rms_norm, silu_mul, gelu_mul, rope, residual add and embedding.
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/clamped_swiglu.h"
#include "kernels/embedding.h"
#include "kernels/gelu_mul.h"
#include "kernels/kernel_testing.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/silu_mul.h"

namespace sluice::kernels {
namespace {

class ElementwiseTest : public KernelTest {};

TEST_P(ElementwiseTest, RmsNormAgreesWithDoublePrecision) {
  Random random(1);
  ThreadPool pool(2);
  for (int64_t cols : {1, 7, 16, 31, 64, 100, 2048, 4097}) {
    const int64_t rows = 5, stride = cols + 3;
    const std::vector<float> x = random.Normal(rows * stride, 3.0f);
    const std::vector<float> weight = random.Normal(cols);
    std::vector<float> y(static_cast<size_t>(rows * cols));
    std::vector<BFloat16> y_bf16(y.size());
    RmsNorm(pool, x.data(), stride, weight.data(), 1e-5f, rows, cols, y.data(), ElementType::kF32);
    RmsNorm(pool, x.data(), stride, weight.data(), 1e-5f, rows, cols, y_bf16.data(),
            ElementType::kBF16);
    for (int64_t i = 0; i < rows; ++i) {
      double squares = 0;
      for (int64_t j = 0; j < cols; ++j)
        squares += static_cast<double>(x[i * stride + j]) * x[i * stride + j];
      const double factor = 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
      for (int64_t j = 0; j < cols; ++j) {
        const double expected = weight[j] * (x[i * stride + j] * factor);
        // The bound allows for a few roundings, and for the roundings of a sum in at least 16
        // parts.
        ASSERT_NEAR(y[i * cols + j], expected, std::abs(expected) * (6 + cols / 16) * 0x1p-24)
            << cols;
        ASSERT_EQ(y_bf16[i * cols + j].bits, sluice::ToBFloat16(y[i * cols + j]).bits);
      }
    }
  }
}

TEST_P(ElementwiseTest, AddRmsNormEqualsAddThenNorm) {
  Random random(2);
  ThreadPool pool1(1), pool3(3);
  for (int64_t cols : {5, 64, 999}) {
    const int64_t rows = 7;
    std::vector<float> fused = random.Normal(rows * cols);
    std::vector<float> apart = fused;
    const std::vector<float> delta = random.Normal(rows * cols), weight = random.Normal(cols);
    std::vector<float> y_fused(fused.size()), y_apart(fused.size());
    AddRmsNorm(pool3, fused.data(), delta.data(), weight.data(), 1e-6f, rows, cols, y_fused.data(),
               ElementType::kF32);
    ResidualAdd(pool1, apart.data(), delta.data(), rows * cols);
    RmsNorm(pool1, apart.data(), cols, weight.data(), 1e-6f, rows, cols, y_apart.data(),
            ElementType::kF32);
    EXPECT_EQ(fused, apart);
    EXPECT_EQ(y_fused, y_apart);
  }
}

TEST_P(ElementwiseTest, SiluMulAgreesWithDoublePrecision) {
  Random random(3);
  ThreadPool pool(3);
  for (int64_t width : {1, 15, 16, 17, 1000, 2500}) {
    const int64_t rows = 3;
    std::vector<float> x = random.Normal(rows * 2 * width, 6.0f);
    if (width > 100) {
      x[3] = 1000.0f, x[4] = -1000.0f, x[5] = 0.0f, x[6] = -87.5f, x[7] = 88.9f, x[8] = -104.0f,
      x[9] = 1e-30f;
    }
    std::vector<float> y(static_cast<size_t>(rows * width));
    std::vector<BFloat16> y_bf16(y.size());
    SiluMul(pool, x.data(), rows, width, y.data(), ElementType::kF32);
    SiluMul(pool, x.data(), rows, width, y_bf16.data(), ElementType::kBF16);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        const double gate = x[i * 2 * width + j], up = x[i * 2 * width + width + j];
        const double expected = gate / (1 + std::exp(-gate)) * up;
        ASSERT_NEAR(y[i * width + j], expected, std::abs(expected) * 5e-7 + 1e-34) << gate;
        ASSERT_EQ(y_bf16[i * width + j].bits, sluice::ToBFloat16(y[i * width + j]).bits);
      }
    }
  }
}

TEST_P(ElementwiseTest, GeluMulAgreesWithDoublePrecision) {
  Random random(13);
  ThreadPool pool(3);
  for (int64_t width : {1, 17, 2500}) {
    const int64_t rows = 3;
    std::vector<float> x = random.Normal(rows * 2 * width, 2.0f);
    if (width > 100) x[3] = 1e15f, x[4] = -1e15f, x[5] = 0.0f, x[6] = -12.0f, x[7] = 1e-30f;
    std::vector<float> y(static_cast<size_t>(rows * width));
    std::vector<BFloat16> y_bf16(y.size());
    GeluMul(pool, x.data(), rows, width, y.data(), ElementType::kF32);
    GeluMul(pool, x.data(), rows, width, y_bf16.data(), ElementType::kBF16);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        const double z = x[i * 2 * width + j], up = x[i * 2 * width + width + j];
        const double inner = std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z);
        // The tolerance includes the rounding of the exponent, which matters if the exponent is
        // large.
        const double expected = z / (1 + std::exp(-2 * inner)) * up;
        ASSERT_NEAR(y[i * width + j], expected,
                    std::abs(expected) * (5e-7 + std::abs(inner) * 4e-7) + 1e-34)
            << z;

        ASSERT_EQ(y_bf16[i * width + j].bits, sluice::ToBFloat16(y[i * width + j]).bits);
      }
    }
  }
}

TEST_P(ElementwiseTest, ClampedSwigluAgreesWithDoublePrecision) {
  Random random(14);
  ThreadPool pool(3);
  const SwigluClamp clamp = {.alpha = 1.5f, .limit = 5};
  for (int64_t width : {1, 4, 15, 16, 17, 1500}) {
    const int64_t rows = 3;
    std::vector<float> x = random.Normal(rows * 2 * width, 4.0f);
    if (width > 100) x[2] = 1e20f, x[3] = -1e20f, x[4] = -1e20f, x[5] = 1e20f, x[6] = -80.0f;
    std::vector<float> y(static_cast<size_t>(rows * width));
    std::vector<BFloat16> y_bf16(y.size());
    ClampedSwiglu(pool, x.data(), rows, width, clamp, y.data(), ElementType::kF32);
    ClampedSwiglu(pool, x.data(), rows, width, clamp, y_bf16.data(), ElementType::kBF16);
    for (size_t i = 0; i < y.size(); ++i) {
      const double gate = std::min<double>(x[2 * i], clamp.limit);
      const double up = std::clamp<double>(x[2 * i + 1], -clamp.limit, clamp.limit);
      const double expected = gate / (1 + std::exp(-clamp.alpha * gate)) * (up + 1);
      // The tolerance includes the rounding of the exponent, which matters if the exponent is
      // large.
      ASSERT_NEAR(y[i], expected, std::abs(expected) * (1e-6 + std::abs(gate) * 2e-7) + 1e-20)
          << gate << " " << up;
      ASSERT_EQ(y_bf16[i].bits, sluice::ToBFloat16(y[i]).bits);
    }
  }
}

// The result of an element must not depend on the element's place in a vector.
TEST_P(ElementwiseTest, SiluMulDoesNotDependOnThePlace) {
  Random random(4);
  ThreadPool pool(1);
  const std::vector<float> gate = random.Normal(50, 4.0f), up = random.Normal(50);
  std::vector<float> x(gate);
  x.insert(x.end(), up.begin(), up.end());
  std::vector<float> all(50);
  SiluMul(pool, x.data(), 1, 50, all.data(), ElementType::kF32);
  for (size_t i = 0; i < 50; ++i) {
    const float pair[2] = {gate[i], up[i]};
    float one = 0;
    SiluMul(pool, pair, 1, 1, &one, ElementType::kF32);
    EXPECT_EQ(one, all[i]) << i;
  }
}

struct RopeShape {
  RopeStyle style;
  int head_dim, rotary_dim;
  float amplitude;
};

void CheckRope(ThreadPool& pool, Random& random, const RopeShape& shape) {
  const int num_heads = 3, half = shape.rotary_dim / 2;
  const std::vector<int32_t> positions = {0, 1, 77, 4000};
  const int64_t stride = int64_t{num_heads} * shape.head_dim + 5;
  std::vector<float> x = random.Normal(4 * stride);
  const std::vector<float> before = x;
  const std::vector<float> frequencies = RopeFrequencies(shape.rotary_dim, 10000.0, std::nullopt);
  std::vector<float> cos_sin(static_cast<size_t>(4 * shape.rotary_dim));
  RopeTable(pool, positions, frequencies, cos_sin.data(), shape.amplitude);
  ApplyRope(pool, x.data(), stride, 4, num_heads, shape.head_dim, shape.rotary_dim, shape.style,
            cos_sin.data());
  std::vector<double> expected(before.begin(), before.end());
  for (int64_t row = 0; row < 4; ++row) {
    for (int head = 0; head < num_heads; ++head) {
      for (int i = 0; i < half; ++i) {
        const int64_t base = row * stride + head * shape.head_dim;
        const bool is_half = shape.style == RopeStyle::kHalf;
        const int64_t a = base + (is_half ? i : 2 * i);
        const int64_t b = base + (is_half ? half + i : 2 * i + 1);
        const double angle = static_cast<float>(positions[row]) * frequencies[i];
        const double cosine = std::cos(angle) * shape.amplitude;
        const double sine = std::sin(angle) * shape.amplitude;
        expected[a] = before[a] * cosine - before[b] * sine;
        expected[b] = before[a] * sine + before[b] * cosine;
      }
    }
  }
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], expected[i], 2e-6) << i;
}

TEST_P(ElementwiseTest, RopeRotatesPairs) {
  Random random(5);
  ThreadPool pool(2);
  for (const RopeStyle style : {RopeStyle::kHalf, RopeStyle::kInterleaved}) {
    for (const int head_dim : {32, 40, 64, 128, 256})
      CheckRope(pool, random, {style, head_dim, head_dim, 1});
    CheckRope(pool, random, {style, 64, 32, 1});
    CheckRope(pool, random, {style, 128, 96, 1.25f});
    CheckRope(pool, random, {style, 40, 18, 1});
  }
}

TEST_P(ElementwiseTest, EmbeddingReadsRowsOutOfPanels) {
  Random random(6);
  ThreadPool pool(2);
  for (ElementType type : {ElementType::kBF16, ElementType::kF32}) {
    for (int64_t cols : {3, 64, 129}) {
      const std::vector<float> rows = random.Normal(45 * cols);
      DataFormat format;
      format.type = type;
      PackedMatrix table = *AllocatePacked(format, 45, cols, "test");
      PackRows(pool, table, 0, PlainMatrix(rows.data(), ElementType::kF32, 45, cols), 0, 45);
      const std::vector<int32_t> tokens = {44, 0, 15, 16, 16, 31};
      std::vector<float> out(tokens.size() * static_cast<size_t>(cols));
      Embedding(pool, table, tokens, out.data());
      const std::vector<float> expected = type == ElementType::kBF16 ? Rounded(rows) : rows;
      for (size_t i = 0; i < tokens.size(); ++i) {
        EXPECT_EQ(0,
                  std::memcmp(out.data() + i * cols, expected.data() + tokens[i] * cols, cols * 4))
            << i;
      }
    }
  }
}

INSTANTIATE_KERNEL_TEST(ElementwiseTest);

// Frequencies of published configurations, computed in double precision.
TEST(Rope, Llama3FrequenciesMatchPublishedModels) {
  struct Golden {
    int head_dim;
    double factor, low, high;
    std::vector<std::pair<int, double>> values;
  };
  const Golden cases[] = {
      {64,
       32,
       1,
       4,
       {{14, 3.211445995e-03},
        {15, 1.290547928e-03},
        {16, 4.295567966e-04},
        {17, 9.708287803e-05},
        {18, 1.946163818e-05},
        {31, 9.418306725e-08}}},
      {128,
       8,
       1,
       4,
       {{1, 8.146172339e-01},
        {29, 2.166570764e-03},
        {30, 1.371893568e-03},
        {31, 8.567514129e-04},
        {32, 5.248461610e-04},
        {33, 3.126937504e-04},
        {34, 1.785078128e-04},
        {35, 9.556212354e-05},
        {63, 3.068925989e-07}}},
      {128, 32, 1, 4, {{29, 2.118406997e-03}, {34, 9.708287803e-05}, {63, 7.672314972e-08}}},
      {128, 16, 1, 1, {{34, 9.384738704e-04}, {35, 4.778106177e-05}, {63, 1.534462994e-07}}},
  };
  for (const Golden& golden : cases) {
    const auto frequencies = RopeFrequencies(
        golden.head_dim, 500000.0, Llama3RopeScaling{golden.factor, golden.low, golden.high, 8192});
    for (auto [i, expected] : golden.values) {
      EXPECT_NEAR(frequencies[static_cast<size_t>(i)], expected, expected * 1e-7)
          << golden.factor << " " << i;
    }
  }
}

TEST(Rope, UnscaledFrequenciesAreThePlainPowers) {
  const auto frequencies = RopeFrequencies(64, 500000.0, std::nullopt);
  ASSERT_EQ(frequencies.size(), 32u);
  EXPECT_EQ(frequencies[0], 1.0f);
  EXPECT_NEAR(frequencies[15], 2.131119537e-03, 1e-10);
}

}  // namespace
}  // namespace sluice::kernels
