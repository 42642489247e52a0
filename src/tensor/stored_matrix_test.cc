// Decodes every code with every scale and compares with the formats' definitions.
#include "tensor/stored_matrix.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/bfloat16.h"

namespace sluice {
namespace {

using Layout = DataFormat::ScaleLayout;

double E4M3Value(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7F) == 0x7F) return NAN;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1 + mantissa / 8.0, exponent - 7);
  return code & 0x80 ? -magnitude : magnitude;
}

double E2M1Value(int code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const double magnitude =
      exponent == 0 ? mantissa * 0.5 : std::ldexp(1 + mantissa / 2.0, exponent - 1);
  return code & 8 ? -magnitude : magnitude;
}

void ExpectSame(float value, double expected) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(value));
    return;
  }
  EXPECT_EQ(value, static_cast<float>(expected));
  EXPECT_EQ(std::signbit(value), std::signbit(expected));
}

template <typename T>
const std::byte* Bytes(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

TEST(StoredMatrixTest, EveryE4M3CodeUnderPowersOfTwo) {
  std::vector<uint8_t> codes;
  for (int code = 0; code < 256; ++code) codes.push_back(static_cast<uint8_t>(code));
  for (const float scale : {1.0f, 0x1p-20f, 0x1p30f, 0x1p-133f}) {
    const StoredMatrix matrix{
        .format = {.type = ElementType::kF8E4M3, .scale_layout = Layout::kPerTensor},
        .rows = 1,
        .cols = 256,
        .data = Bytes(codes),
        .scales = reinterpret_cast<const std::byte*>(&scale)};
    std::vector<float> row(256);
    DecodeStoredRow(matrix, 0, row.data());
    for (int code = 0; code < 256; ++code)
      ExpectSame(row[static_cast<size_t>(code)], E4M3Value(code) * scale);
  }
}

// Exact in double: products of 2, 4 and 24 significant bits.
TEST(StoredMatrixTest, EveryPairOfE2M1AndE4M3Scale) {
  std::vector<uint8_t> codes, scales;
  for (int scale = 0; scale < 256; ++scale) {
    for (int pair = 0; pair < 8; ++pair)
      codes.push_back(static_cast<uint8_t>(2 * pair | (2 * pair + 1) << 4));
    scales.push_back(static_cast<uint8_t>(scale));
  }
  for (const float second : {1.0f, 0.0037f, 3.1e-5f}) {
    const StoredMatrix matrix{.format = {.type = ElementType::kF4E2M1,
                                         .scale_layout = Layout::kPerGroup,
                                         .scale_type = ElementType::kF8E4M3,
                                         .group_size = 16,
                                         .has_second_scale = true},
                              .rows = 256,
                              .cols = 16,
                              .data = Bytes(codes),
                              .scales = Bytes(scales),
                              .second_scale = second};
    std::vector<float> row(16);
    for (int scale = 0; scale < 256; ++scale) {
      DecodeStoredRow(matrix, scale, row.data());
      for (int code = 0; code < 16; ++code)
        ExpectSame(row[static_cast<size_t>(code)], E2M1Value(code) * E4M3Value(scale) * second);
    }
  }
}

TEST(StoredMatrixTest, EveryPairOfE2M1AndPowerOfTwo) {
  std::vector<uint8_t> codes, scales;
  for (int scale = 0; scale < 256; ++scale) {
    for (int i = 0; i < 16; ++i)
      codes.push_back(static_cast<uint8_t>((2 * i & 15) | ((2 * i + 1) & 15) << 4));
    scales.push_back(static_cast<uint8_t>(scale));
  }
  for (const ElementType type : {ElementType::kF8E8M0, ElementType::kU8}) {
    const StoredMatrix matrix{.format = {.type = ElementType::kF4E2M1,
                                         .scale_layout = Layout::kPerGroup,
                                         .scale_type = type,
                                         .group_size = 32},
                              .rows = 256,
                              .cols = 32,
                              .data = Bytes(codes),
                              .scales = Bytes(scales)};
    std::vector<float> row(32);
    for (int scale = 0; scale < 256; ++scale) {
      DecodeStoredRow(matrix, scale, row.data());
      const double factor = scale == 255 ? NAN : std::ldexp(1.0, scale - 127);
      for (int k = 0; k < 32; ++k)
        ExpectSame(row[static_cast<size_t>(k)], E2M1Value(k & 15) * factor);
    }
  }
}

TEST(StoredMatrixTest, EveryIntegerUnderScalesOfRows) {
  std::vector<int8_t> codes;
  for (int row = 0; row < 2; ++row) {
    for (int code = -128; code < 128; ++code) codes.push_back(static_cast<int8_t>(code));
  }
  const std::vector<uint16_t> scales = {ToBFloat16(0.013f).bits, ToBFloat16(3.0f).bits};
  const StoredMatrix matrix{.format = {.type = ElementType::kI8,
                                       .scale_layout = Layout::kPerRow,
                                       .scale_type = ElementType::kBF16},
                            .rows = 2,
                            .cols = 256,
                            .data = Bytes(codes),
                            .scales = Bytes(scales)};
  std::vector<float> row(256);
  for (int64_t r = 0; r < 2; ++r) {
    DecodeStoredRow(matrix, r, row.data());
    for (int code = -128; code < 128; ++code) {
      EXPECT_EQ(row[static_cast<size_t>(code + 128)],
                static_cast<float>(code) * ToFloat(BFloat16{scales[static_cast<size_t>(r)]}));
    }
  }
}

TEST(StoredMatrixTest, TransposedMatricesHoldTheSameValues) {
  // [out 2, in 4] of packed numbers: bytes [out][in / 2], and the same numbers as [in / 2][out].
  const std::vector<uint8_t> plain = {0x21, 0x43, 0x65, 0x07}, turned = {0x21, 0x65, 0x43, 0x07};
  const std::vector<uint8_t> plain_scales = {127, 128, 129, 126},
                             turned_scales = {127, 129, 128, 126};
  StoredMatrix matrix{.format = {.type = ElementType::kF4E2M1,
                                 .scale_layout = Layout::kPerGroup,
                                 .scale_type = ElementType::kF8E8M0,
                                 .group_size = 2},
                      .rows = 2,
                      .cols = 4,
                      .data = Bytes(plain),
                      .scales = Bytes(plain_scales)};
  StoredMatrix other = matrix;
  other.data = Bytes(turned);
  other.scales = Bytes(turned_scales);
  other.transposed = true;
  for (int64_t row = 0; row < 2; ++row) {
    std::vector<float> a(4), b(4);
    DecodeStoredRow(matrix, row, a.data());
    DecodeStoredRow(other, row, b.data());
    EXPECT_EQ(a, b);
    EXPECT_NE(a[0], 0);
  }
}

}  // namespace
}  // namespace sluice
