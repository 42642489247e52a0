// random_codes and random_scales.
#include <set>

#include "kernels/cuda/device_kernel_testing.h"
#include "kernels/cuda/nvf4_scales.h"
#include "kernels/random_bits.h"

namespace sluice::emulated {
namespace {

TEST(RandomBits, AreThoseOfSplitMix64) {
  EXPECT_EQ(kernels::MixBits(0), 0xE220A8397B1DCDAFu);
  EXPECT_EQ(kernels::MixBits(0x9E3779B97F4A7C15u), 0x6E789E6AA1B965F4u);
}

constexpr uint64_t kSeed = 0x0123456789ABCDEFu;

int64_t RowBytes(ElementType type, int64_t cols) {
  return type == ElementType::kBF16 ? cols * 2 : type == ElementType::kF4E2M1 ? cols / 2 : cols;
}

std::vector<uint8_t> Make(ElementType type, int64_t first_row, int64_t rows, int64_t cols) {
  return ResultOfBothOrders<uint8_t>(rows * RowBytes(type, cols), 0,
                                     [&](const StreamHandle& stream, uint8_t* out) {
                                       LaunchRandomCodes(stream, {.out = out,
                                                                  .type = type,
                                                                  .tensor_seed = kSeed,
                                                                  .first_row = first_row,
                                                                  .rows = rows,
                                                                  .cols = cols,
                                                                  .scale = 0x1.3p-12f});
                                     });
}

TEST(DeviceRandomCodes, AreTheHashedOnes) {
  for (const int64_t cols : {2, 8, 64, 100, 4160}) {
    const int64_t rows = 5, first_row = 1000;
    for (const ElementType type :
         {ElementType::kF8E4M3, ElementType::kI8, ElementType::kF4E2M1, ElementType::kBF16}) {
      const std::vector<uint8_t> codes = Make(type, first_row, rows, cols);
      const int64_t row_bytes = RowBytes(type, cols);
      for (int64_t row = 0; row < rows; ++row) {
        const uint64_t row_seed = kernels::MixBits(kSeed + static_cast<uint64_t>(first_row + row));
        for (int64_t i = 0; i < (type == ElementType::kBF16 ? cols : row_bytes); ++i) {
          if (type == ElementType::kBF16) {
            const uint64_t bits = kernels::MixBits(row_seed + static_cast<uint64_t>(i / 4 * 4));
            const auto integer = static_cast<int16_t>(bits >> (i % 4 * 16));
            uint16_t value = 0;
            memcpy(&value, codes.data() + row * row_bytes + i * 2, 2);
            ASSERT_EQ(value, ToBFloat16(static_cast<float>(integer) * 0x1.3p-12f).bits);
            continue;
          }
          const uint64_t bits = kernels::MixBits(row_seed + static_cast<uint64_t>(i / 8 * 8));
          auto code = static_cast<uint8_t>(bits >> (i % 8 * 8));
          if (type == ElementType::kF8E4M3 && code == 0x7F) code = 0x70;
          if (type == ElementType::kF8E4M3 && code == 0xFF) code = 0xF0;
          if (type == ElementType::kI8 && code == 0x80) code = 0;
          ASSERT_EQ(codes[row * row_bytes + i], code) << row << ", " << i;
        }
      }
      // Rows of a later piece are the same.
      const std::vector<uint8_t> last = Make(type, first_row + rows - 1, 1, cols);
      EXPECT_TRUE(std::equal(last.begin(), last.end(), codes.end() - row_bytes));
    }
  }
}

TEST(DeviceRandomCodes, HoldNoNanAndEveryOtherCode) {
  const std::vector<uint8_t> f8 = Make(ElementType::kF8E4M3, 0, 16, 1024);
  EXPECT_EQ(std::set<uint8_t>(f8.begin(), f8.end()).size(), 254u);
  const std::vector<uint8_t> i8 = Make(ElementType::kI8, 0, 16, 1024);
  EXPECT_EQ(std::set<uint8_t>(i8.begin(), i8.end()).size(), 255u);
}

TEST(DeviceRandomScales, AreRandomOrConstant) {
  using device::GroupScales;
  const int64_t count = 700;
  const auto make = [&](GroupScales type, float value, int64_t bytes) {
    return ResultOfBothOrders<uint8_t>(
        count * bytes, 0, [&](const StreamHandle& stream, uint8_t* out) {
          LaunchRandomScales(
              stream,
              {.out = out, .type = type, .tensor_seed = kSeed, .count = count, .value = value});
        });
  };
  EXPECT_EQ(make(GroupScales::kE8M0, 121, 1), std::vector<uint8_t>(count, 121));
  const std::vector<uint8_t> block = make(GroupScales::kBlock, 0.0625f, 4);
  for (int64_t i = 0; i < count; ++i) {
    float value = 0;
    memcpy(&value, block.data() + i * 4, 4);
    EXPECT_EQ(value, 0.0625f);
  }
}

// Rows of a matrix of 140 rows: they reach over the end of a tile of scales.
TEST(DeviceRandomScales, OfGroupsStandWhereProductsLookForThem) {
  const int64_t rows = 40, first_row = 100, groups = 6;
  const int64_t bytes = device::NvF4ScaleBytes(first_row + rows, groups);
  EXPECT_EQ(bytes, 2 * 2 * 512);
  const auto scales =
      ResultOfBothOrders<uint8_t>(bytes, 0xEE, [&](const StreamHandle& stream, uint8_t* out) {
        LaunchRandomScales(stream, {.out = out,
                                    .type = device::GroupScales::kE4M3,
                                    .tensor_seed = kSeed,
                                    .count = rows * groups,
                                    .value = 0,
                                    .first_row = first_row,
                                    .groups = groups});
      });
  std::vector<uint8_t> expected(static_cast<size_t>(bytes), 0xEE);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      // Byte by byte as the PTX ISA has it.
      const int64_t r = first_row + row, tile = r / 128 * 2 + group / 4;
      const auto at = static_cast<size_t>(tile * 512 + r % 32 * 16 + r % 128 / 32 * 4 + group % 4);
      const uint64_t index = static_cast<uint64_t>(row * groups + group);
      expected[at] = static_cast<uint8_t>(0x30 + (kernels::MixBits(kSeed + index) & 0xF));
      const float scale = ToFloat(Float8E4M3{expected[at]});
      EXPECT_TRUE(scale >= 0.5f && scale <= 1.875f) << scale;
    }
  }
  EXPECT_EQ(scales, expected);
}

}  // namespace
}  // namespace sluice::emulated
