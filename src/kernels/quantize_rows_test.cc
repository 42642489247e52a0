// Compares rounded activations with tests/data/activations/rounded_rows.json, generated with NumPy.
#include "kernels/quantize_rows.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "base/source_path_testing.h"
#include "kernels/kernel_testing.h"

namespace sluice::kernels {
namespace {

using Kind = ActivationFormat::Kind;

std::vector<float> Numbers(const json::Value& words) {
  const std::string& text = words.as_string();
  std::vector<float> numbers;
  for (size_t i = 0; i < text.size(); i += 8) {
    uint32_t bits = 0;
    std::from_chars(text.data() + i, text.data() + i + 8, bits, 16);
    numbers.push_back(std::bit_cast<float>(bits));
  }
  return numbers;
}

std::vector<uint32_t> BitsOf(const std::vector<float>& numbers) {
  std::vector<uint32_t> bits;
  for (const float number : numbers) bits.push_back(std::bit_cast<uint32_t>(number));
  return bits;
}

Kind KindOf(const std::string& name) {
  if (name == "fp8_static") return Kind::kFp8Static;
  if (name == "fp8_per_token") return Kind::kFp8PerToken;
  if (name == "fp8_per_group") return Kind::kFp8PerGroup;
  if (name == "nvfp4") return Kind::kNvfp4;
  EXPECT_EQ(name, "mxfp4");
  return Kind::kMxfp4;
}

class RoundRowsTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    const auto text = ReadFile(SourcePath("tests/data/activations/rounded_rows.json"));
    ASSERT_TRUE(text) << text.error().message;
    golden_ = *json::Parse(*text);
    cols_ = golden_.Find("cols")->as_integer();
    for (const json::Value& row : golden_.Find("rows")->as_array()) {
      const std::vector<float> numbers = Numbers(row);
      ASSERT_EQ(static_cast<int64_t>(numbers.size()), cols_);
      x_.insert(x_.end(), numbers.begin(), numbers.end());
    }
  }
  Activations X() const {
    return {.data = x_.data(),
            .type = ElementType::kF32,
            .rows = static_cast<int64_t>(x_.size()) / cols_,
            .cols = cols_,
            .stride = cols_};
  }

  json::Value golden_;
  int64_t cols_ = 0;
  std::vector<float> x_;
};

TEST_P(RoundRowsTest, EqualsTheEmulationBitForBit) {
  ThreadPool pool(2);
  int compared = 0;
  for (const json::Value& rounded : golden_.Find("rounded")->as_array()) {
    const ActivationFormat format{
        .kind = KindOf(rounded.Find("kind")->as_string()),
        .group_size = static_cast<int>(rounded.Find("group_size")->as_integer())};
    const auto scale = static_cast<float>(rounded.Find("input_scale")->as_double());
    std::vector<float> out(x_.size());
    RoundRows(pool, format, scale, X(), out.data());
    const json::Value::Array& rows = rounded.Find("rows")->as_array();
    for (size_t row = 0; row < rows.size(); ++row) {
      const std::vector<float> expected = Numbers(rows[row]);
      const auto begin = out.begin() + static_cast<ptrdiff_t>(row) * cols_;
      const std::vector<float> got(begin, begin + cols_);
      EXPECT_EQ(BitsOf(got), BitsOf(expected))
          << rounded.Find("kind")->as_string() << " scale " << scale << " row " << row;
      ++compared;
    }
  }
  EXPECT_GE(compared, 9 * 10);
}

// The same formula as in compressed-tensors: round(clamp(x / scale + zero, -128, 127)), ties to
// even, then dequantized.
TEST_P(RoundRowsTest, StaticIntegersHaveAZeroPoint) {
  ThreadPool pool(2);
  for (const int zero : {0, -128, 127, 37}) {
    const ActivationFormat format = {.kind = Kind::kInt8Static, .zero_point = zero};
    const std::vector<float> x = {0,     0.25f,  -0.25f, 0.75f,  1.25f, 63.4f, -63.6f,
                                  1e30f, -1e30f, 0.5f,   -0.75f, 12.3f, -47.0f};
    const float scale = 0.5f;
    std::vector<float> out(x.size());
    RoundRows(pool, format, scale,
              {.data = x.data(),
               .type = ElementType::kF32,
               .rows = 1,
               .cols = std::ssize(x),
               .stride = std::ssize(x)},
              out.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double shifted = std::clamp(static_cast<double>(x[i]) / scale + zero, -128.0, 127.0);
      EXPECT_EQ(out[i], static_cast<float>((std::nearbyint(shifted) - zero) * scale))
          << x[i] << ", zero " << zero;
    }
  }
}

TEST_P(RoundRowsTest, TheLargestMagnitudeOfATokenHasABound) {
  ThreadPool pool(1);
  const std::vector<float> x = {3000, -2, 1, 0.1f, -1200, 600, 7, 8};
  const auto rounded = [&](std::vector<float> row, float bound) {
    std::vector<float> out(row.size());
    RoundRows(pool, {.kind = Kind::kFp8PerToken, .largest_amax = bound}, 1,
              {.data = row.data(),
               .type = ElementType::kF32,
               .rows = 1,
               .cols = std::ssize(row),
               .stride = std::ssize(row)},
              out.data());
    return out;
  };
  std::vector<float> clipped = x;
  clipped[0] = 1200;
  EXPECT_EQ(BitsOf(rounded(x, 1200)), BitsOf(rounded(clipped, 0)));
  EXPECT_EQ(BitsOf(rounded(clipped, 1200)), BitsOf(rounded(clipped, 0)));
  EXPECT_NE(BitsOf(rounded(x, 1200)), BitsOf(rounded(x, 0)));
}

TEST_P(RoundRowsTest, Int8EqualsTheEmulation) {
  ThreadPool pool(3);
  std::vector<int8_t> out(x_.size());
  std::vector<float> scales(static_cast<size_t>(X().rows));
  QuantizeInt8Rows(pool, X(), out.data(), scales.data());
  const json::Value::Array& rows = golden_.Find("int8")->as_array();
  ASSERT_EQ(rows.size(), scales.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    EXPECT_EQ(scales[row], Numbers(*rows[row].Find("scale"))[0]) << row;
    const json::Value::Array& values = rows[row].Find("values")->as_array();
    for (size_t k = 0; k < values.size(); ++k)
      ASSERT_EQ(out[row * static_cast<size_t>(cols_) + k], values[k].as_integer())
          << row << " " << k;
  }
}

TEST_P(RoundRowsTest, Bf16RowsAreTheirValues) {
  ThreadPool pool(1);
  const std::vector<float> rounded = Rounded(x_);
  const std::vector<BFloat16> narrow = ToBFloat16(x_);
  Activations wide = X(), bf16 = X();
  wide.data = rounded.data();
  bf16.data = narrow.data();
  bf16.type = ElementType::kBF16;
  for (const ActivationFormat format :
       {ActivationFormat{Kind::kFp8PerToken, 0}, ActivationFormat{Kind::kNvfp4, 16}}) {
    std::vector<float> a(x_.size()), b(x_.size());
    RoundRows(pool, format, 0.01f, wide, a.data());
    RoundRows(pool, format, 0.01f, bf16, b.data());
    EXPECT_EQ(BitsOf(a), BitsOf(b));
  }
  std::vector<int8_t> a(x_.size()), b(x_.size());
  std::vector<float> a_scales(static_cast<size_t>(wide.rows)), b_scales = a_scales;
  QuantizeInt8Rows(pool, wide, a.data(), a_scales.data());
  QuantizeInt8Rows(pool, bf16, b.data(), b_scales.data());
  EXPECT_EQ(a, b);
  EXPECT_EQ(a_scales, b_scales);
}

TEST_P(RoundRowsTest, AStrideIsPassedOver) {
  ThreadPool pool(2);
  Random random(3);
  const std::vector<float> x = random.Normal(5 * 100);
  const Activations strided{
      .data = x.data(), .type = ElementType::kF32, .rows = 5, .cols = 64, .stride = 100};
  std::vector<float> out(5 * 64), alone(64);
  RoundRows(pool, {Kind::kFp8PerToken, 0}, 1, strided, out.data());
  for (int64_t row = 0; row < 5; ++row) {
    Activations one = strided;
    one.data = x.data() + row * 100;
    one.rows = 1;
    RoundRows(pool, {Kind::kFp8PerToken, 0}, 1, one, alone.data());
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), out.begin() + row * 64)) << row;
  }
}

TEST_P(RoundRowsTest, NotANumberStaysVisible) {
  ThreadPool pool(1);
  std::vector<float> x(32, 1.0f);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  const Activations row{
      .data = x.data(), .type = ElementType::kF32, .rows = 1, .cols = 32, .stride = 32};
  std::vector<float> out(32);
  RoundRows(pool, {Kind::kFp8Static, 0}, 0.5f, row, out.data());
  EXPECT_TRUE(std::isnan(out[3]));
  EXPECT_EQ(out[2], 1.0f);
  std::vector<int8_t> integers(32);
  float scale = 0;
  QuantizeInt8Rows(pool, row, integers.data(), &scale);
  EXPECT_TRUE(std::isnan(scale));
}

TEST_P(RoundRowsTest, NaNOrInfinityMakesAnMxfp4GroupNaN) {
  ThreadPool pool(1);
  const ActivationFormat format{.kind = Kind::kMxfp4, .group_size = 32};
  for (const uint32_t bits :
       {0x7FC00000u, 0xFFC00000u, 0x7FFFFFFFu, 0xFFFFFFFFu, 0x7F800000u, 0xFF800000u}) {
    for (const size_t place : {0u, 13u, 31u}) {
      std::vector<float> x(64, -1.0f), out(64);
      x[place] = std::bit_cast<float>(bits);
      RoundRows(pool, format, 1,
                {.data = x.data(), .type = ElementType::kF32, .rows = 1, .cols = 64, .stride = 64},
                out.data());
      for (size_t i = 0; i < 32; ++i) EXPECT_TRUE(std::isnan(out[i])) << i << ", " << bits;
      for (size_t i = 32; i < 64; ++i) EXPECT_EQ(out[i], -1.0f) << i << ", " << bits;
    }
  }
}

TEST_P(RoundRowsTest, LargeNumbersOfAnMxfp4GroupSaturate) {
  ThreadPool pool(1);
  std::vector<float> x(32, 0x1p127f), out(32);
  x[5] = -std::numeric_limits<float>::max();
  RoundRows(pool, {.kind = Kind::kMxfp4, .group_size = 32}, 1,
            {.data = x.data(), .type = ElementType::kF32, .rows = 1, .cols = 32, .stride = 32},
            out.data());
  EXPECT_EQ(out[5], -0x1.8p127f);
  EXPECT_EQ(out[6], 0x1p127f);
}

INSTANTIATE_KERNEL_TEST(RoundRowsTest);

}  // namespace
}  // namespace sluice::kernels
