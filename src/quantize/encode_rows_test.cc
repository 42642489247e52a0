#include "tensor/encode_rows.h"

#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quantize/targets.h"
#include "tensor/bfloat16.h"
#include "tensor/float4.h"
#include "tensor/float8.h"
#include "tensor/stored_matrix.h"

namespace sluice {
namespace {

struct Encoded {
  std::vector<std::byte> codes, scales;
  std::vector<float> values;  // decoded values
};

Encoded Encode(const char* name, const std::vector<float>& w, int64_t rows, int64_t cols,
               GroupScales group_scales = GroupScales::kAmax) {
  const QuantizeTarget& target = *FindQuantizeTarget(name);
  Encoded result;
  float amax = 0;
  for (const float x : w) amax = std::max(amax, std::fabs(x));
  const float tensor_scale = TensorScale(target.encoding(), amax);
  StoredMatrix matrix{.format = target.format, .rows = rows, .cols = cols};
  result.codes.resize(static_cast<size_t>(DataBytes(matrix)));
  result.scales.resize(static_cast<size_t>(ScaleBytes(matrix)));
  EncodeRows(target.encoding(), group_scales, w.data(), rows, cols, tensor_scale,
             result.codes.data(), result.scales.data());
  if (target.format.scale_layout == DataFormat::ScaleLayout::kPerTensor)
    WriteNumber(target.format.scale_type, tensor_scale, result.scales.data());
  matrix.data = result.codes.data();
  matrix.scales = result.scales.data();
  if (target.format.has_second_scale) matrix.second_scale = tensor_scale;
  result.values.resize(w.size());
  for (int64_t row = 0; row < rows; ++row)
    DecodeStoredRow(matrix, row, result.values.data() + row * cols);
  return result;
}

std::vector<float> RandomWeights(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> w;
  for (int64_t i = 0; i < count; ++i) w.push_back(ToFloat(ToBFloat16(0.02f * normal(random))));
  return w;
}

double RelativeError(const std::vector<float>& w, const std::vector<float>& values) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    error += std::pow(double{values[i]} - w[i], 2);
    norm += std::pow(double{w[i]}, 2);
  }
  return std::sqrt(error / norm);
}

TEST(EncodeRowsTest, ErrorsAreThoseOfTheFormats) {
  const auto w = RandomWeights(256 * 256, 1);
  const struct {
    const char* target;
    double low, high;
  } kCases[] = {{"modelopt-fp8", 0.02, 0.03}, {"quark-fp8", 0.02, 0.03},
                {"block-fp8", 0.02, 0.03},    {"fp8-dynamic", 0.02, 0.03},
                {"int8-w8a8", 0.005, 0.01},   {"modelopt-nvfp4", 0.08, 0.11},
                {"quark-mxfp4", 0.10, 0.13}};
  for (const auto& test : kCases) {
    const double error = RelativeError(w, Encode(test.target, w, 256, 256).values);
    EXPECT_GT(error, test.low) << test.target;
    EXPECT_LT(error, test.high) << test.target;
  }
}

TEST(EncodeRowsTest, NumbersOfTheFormatAreKeptExactly) {
  // Tests every E4M3 number, including 448, with scale 1.
  std::vector<float> w;
  for (int code = 0; code < 256; ++code) {
    const float value = ToFloat(Float8E4M3{static_cast<uint8_t>(code)});
    w.push_back(std::isnan(value) ? 448 : value);
  }
  EXPECT_EQ(Encode("modelopt-fp8", w, 2, 128).values, w);
  EXPECT_EQ(Encode("block-fp8", w, 2, 128).values, w);
  // Tests every E2M1 number times a power of two per group.
  w.clear();
  for (int group = 0; group < 8; ++group) {
    for (int i = 0; i < 32; ++i)
      w.push_back(std::ldexp(Float4ToFloat(static_cast<uint8_t>(i & 15)), group - 4));
  }
  EXPECT_EQ(Encode("quark-mxfp4", w, 2, 128).values, w);
}

TEST(EncodeRowsTest, TiesGoToTheEvenCode) {
  // A group whose largest magnitude is 6 has scale 1.
  std::vector<float> w = {6,      0.25f,  0.75f,  1.25f, 1.75f, 2.5f, 3.5f,  5,
                          -0.25f, -0.75f, -1.25f, -2.5f, -5,    0,    -0.0f, 5.1f};
  w.resize(32, 0.0f);
  const auto encoded = Encode("quark-mxfp4", w, 1, 32);
  const std::vector<float> expected = {6, 0, 1, 1, 2, 2, 4, 4, 0, -1, -1, -2, -4, 0, 0, 6};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(encoded.values[i], expected[i]) << i;
  // The tool of this layout writes no negative zeros; ModelOpt does.
  EXPECT_EQ(std::to_integer<int>(encoded.codes[4]) & 0xF, 0);
  w.resize(16);
  const auto nvfp4 = Encode("modelopt-nvfp4", w, 1, 16);
  EXPECT_EQ(std::to_integer<int>(nvfp4.codes[4]) & 0xF, 8);
}

TEST(EncodeRowsTest, ScalesOfMxfp4FollowTheEvenRule) {
  const struct {
    float amax;
    int byte;
  } kCases[] = {{6, 127},      {7, 128}, {6.999f, 127}, {4, 127},   {3.5f, 127},
                {3.499f, 126}, {1, 125}, {0, 0},        {1e-40f, 0}};
  for (const auto& test : kCases) {
    std::vector<float> w(32, 0.0f);
    w[7] = -test.amax;
    EXPECT_EQ(std::to_integer<int>(Encode("quark-mxfp4", w, 1, 32).scales[0]), test.byte)
        << test.amax;
  }
}

TEST(EncodeRowsTest, ZerosStayZerosUnderSoundScales) {
  const std::vector<float> w(4 * 128, 0.0f);
  for (const QuantizeTarget& target : QuantizeTargets()) {
    const auto encoded = Encode(std::string(target.name).c_str(), w, 4, 128);
    for (const float value : encoded.values) ASSERT_EQ(value, 0) << target.name;
  }
}

TEST(EncodeRowsTest, LeastSquaresIsNeverWorse) {
  for (const char* target : {"modelopt-nvfp4", "quark-mxfp4"}) {
    const auto w = RandomWeights(64 * 256, 3);
    const double usual = RelativeError(w, Encode(target, w, 64, 256).values);
    const double best =
        RelativeError(w, Encode(target, w, 64, 256, GroupScales::kLeastSquares).values);
    EXPECT_LT(best, 0.995 * usual) << target;
  }
}

TEST(EncodeRowsTest, InfinityMakesAnMxfp4GroupNaN) {
  for (const GroupScales group_scales : {GroupScales::kAmax, GroupScales::kLeastSquares}) {
    std::vector<float> w(64, 1.0f);
    w[7] = -std::numeric_limits<float>::infinity();
    const auto encoded = Encode("quark-mxfp4", w, 1, 64, group_scales);
    EXPECT_EQ(encoded.scales[0], std::byte{0xFF});
    for (size_t i = 0; i < 32; ++i) EXPECT_TRUE(std::isnan(encoded.values[i])) << i;
    for (size_t i = 32; i < 64; ++i) EXPECT_EQ(encoded.values[i], 1) << i;
  }
}

TEST(EncodeRowsTest, BlocksAtTheEdgeHaveTheirOwnScales) {
  std::vector<float> w(130 * 192, 1.0f);
  w[129 * 192 + 191] = 448;
  const auto encoded = Encode("block-fp8", w, 130, 192);
  EXPECT_EQ(encoded.scales.size(), 4 * 4u);
  EXPECT_EQ(encoded.values[0], 1);
  EXPECT_EQ(encoded.values[129 * 192 + 191], 448);
}

}  // namespace
}  // namespace sluice
