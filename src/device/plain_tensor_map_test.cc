#include "device/plain_tensor_map.h"

#include <cstring>

#include <gtest/gtest.h>

namespace sluice::device {
namespace {

struct Parameters {
  int type = static_cast<int>(TensorType::kU8);
  uint32_t rank = 2;
  uint64_t sizes[3] = {256, 100, 3};
  uint64_t strides[2] = {272, 272 * 100};
  uint32_t box[3] = {128, 64, 1};
  uint32_t element_strides[3] = {1, 1, 1};
  int interleave = 0, swizzle = static_cast<int>(TensorSwizzle::k128), l2_promotion = 3, fill = 0;
  int address_offset = 0, map_offset = 0;

  int Encode() const {
    alignas(64) static unsigned char memory[64], maps[256];
    return EncodePlainTensorMap(reinterpret_cast<TensorMap*>(maps + map_offset), type, rank,
                                memory + address_offset, sizes, strides, box, element_strides,
                                interleave, swizzle, l2_promotion, fill);
  }
};

TEST(PlainTensorMapTest, HasTheLimitsOfTheDriver) {
  EXPECT_EQ(Parameters().Encode(), 0);
  EXPECT_EQ((Parameters{.rank = 3}).Encode(), 0);
  EXPECT_EQ((Parameters{.type = static_cast<int>(TensorType::kBf16),
                        .sizes = {128, 100, 1},
                        .box = {64, 256, 1}})
                .Encode(),
            0);
  EXPECT_EQ(
      (Parameters{.box = {32, 64, 1}, .swizzle = static_cast<int>(TensorSwizzle::k32)}).Encode(),
      0);
  const Parameters refused[] = {
      {.type = 77},
      {.rank = 1},
      {.rank = 4},
      {.sizes = {256, 0, 1}},
      {.sizes = {273, 100, 1}},  // rows overlap
      {.strides = {264, 0}},
      {.strides = {uint64_t{1} << 40, 0}},
      {.box = {0, 64, 1}},
      {.box = {128, 257, 1}},
      {.box = {120, 64, 1}},
      {.element_strides = {1, 2, 1}},
      {.interleave = 1},
      {.box = {144, 64, 1}},  // wider than the swizzle
      {.swizzle = static_cast<int>(TensorSwizzle::k64)},
      {.swizzle = 4},
      {.l2_promotion = 4},
      {.fill = 1},
      {.address_offset = 8},
      {.map_offset = 32},
  };
  for (const Parameters& parameters : refused)
    EXPECT_EQ(parameters.Encode(), 1) << &parameters - refused;
}

TEST(PlainTensorMapTest, HoldsItsParameters) {
  alignas(64) TensorMap map;
  alignas(16) static unsigned char memory[16];
  const uint64_t sizes[] = {100, 7}, strides[] = {256};
  const uint32_t box[] = {16, 5}, ones[] = {1, 1};
  ASSERT_EQ(EncodePlainTensorMap(&map, static_cast<int>(TensorType::kBf16), 2, memory, sizes,
                                 strides, box, ones, 0, static_cast<int>(TensorSwizzle::k32), 0, 0),
            0);
  PlainTensorMap plain;
  memcpy(&plain, &map, sizeof(plain));
  EXPECT_EQ(plain.magic, PlainTensorMap::kMagic);
  EXPECT_EQ(plain.address, reinterpret_cast<uint64_t>(memory));
  EXPECT_EQ(plain.rank, 2u);
  EXPECT_EQ(plain.sizes[0], 100u);
  EXPECT_EQ(plain.sizes[2], 1u);
  EXPECT_EQ(plain.strides[0], 2u);
  EXPECT_EQ(plain.strides[1], 256u);
  EXPECT_EQ(plain.box[1], 5u);
  EXPECT_EQ(plain.swizzle, TensorSwizzle::k32);
}

}  // namespace
}  // namespace sluice::device
