#include "tensor/finite.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/stored_number.h"

namespace sluice {
namespace {

constexpr ElementType kTypes[] = {ElementType::kF32, ElementType::kBF16, ElementType::kF16,
                                  ElementType::kF8E4M3};

// All 8-bit and 16-bit numbers, and all upper halves of F32, at varying places among the largest
// finite numbers.
TEST(FiniteTest, SeesEveryNumberThatIsNotFinite) {
  for (const ElementType type : kTypes) {
    const int64_t width = BitsPerElement(type) / 8;
    const uint32_t largest = type == ElementType::kF32    ? 0xFF7FFFFF
                             : type == ElementType::kBF16 ? 0xFF7F
                             : type == ElementType::kF16  ? 0xFBFF
                                                          : 0xFE;
    for (uint32_t upper = 0; upper < (width == 1 ? 0x100u : 0x10000u); ++upper) {
      const uint32_t bits = width == 4 ? upper << 16 | 1 : upper;
      std::vector<std::byte> bytes(static_cast<size_t>(1 + 37 * width));  // not aligned
      std::byte* data = bytes.data() + 1;
      for (int64_t i = 0; i < 37; ++i) std::memcpy(data + i * width, &largest, width);
      ASSERT_TRUE(AllFinite(data, type, 37));
      const int64_t place = upper % 37;
      std::memcpy(data + place * width, &bits, width);
      const bool finite = std::isfinite(StoredNumber(data, type, place));
      ASSERT_EQ(AllFinite(data, type, 37), finite) << ElementTypeName(type) << " " << bits;
      ASSERT_TRUE(AllFinite(data, type, place)) << ElementTypeName(type) << " " << bits;
      ASSERT_EQ(AllFinite(data, type, place + 1), finite) << ElementTypeName(type) << " " << bits;
    }
  }
}

TEST(FiniteTest, EightBitsWithInfinities) {
  for (int bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<std::byte>(bits);
    EXPECT_EQ(AllFinite(&byte, ElementType::kF8E5M2, 1), (bits & 0x7C) != 0x7C) << bits;
  }
}

TEST(FiniteTest, CodesWithoutSuchNumbersAreFinite) {
  const std::vector<std::byte> bytes(64, std::byte{0xFF});
  for (const ElementType type : {ElementType::kI8, ElementType::kU8, ElementType::kF4E2M1})
    EXPECT_TRUE(AllFinite(bytes.data(), type, 64));
  StoredMatrix codes = PlainMatrix(bytes.data(), ElementType::kF4E2M1, 4, 32);
  EXPECT_TRUE(RowsAreFinite(codes, 0, 4));
  codes.transposed = true;
  EXPECT_TRUE(RowsAreFinite(codes, 0, 4));
}

TEST(FiniteTest, RowsAreThoseOfTheMatrix) {
  for (const bool transposed : {false, true}) {
    std::vector<float> numbers(5 * 7, 1.0f);
    StoredMatrix matrix = PlainMatrix(numbers.data(), ElementType::kF32, 5, 7);
    matrix.transposed = transposed;
    numbers[transposed ? 6 * 5 + 3 : 3 * 7 + 6] = INFINITY;  // row 3, column 6
    for (int64_t begin = 0; begin <= 5; ++begin) {
      for (int64_t end = begin; end <= 5; ++end)
        EXPECT_EQ(RowsAreFinite(matrix, begin, end), !(begin <= 3 && 3 < end));
    }
  }
}

}  // namespace
}  // namespace sluice
