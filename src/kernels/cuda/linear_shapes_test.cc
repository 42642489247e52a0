#include "kernels/cuda/linear_shapes.h"

#include <bit>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

namespace sluice::device {
namespace {

using ::testing::HasSubstr;

Weights Plain(int64_t n, int64_t k, ElementType type = ElementType::kBF16) {
  return {.codes = nullptr,
          .type = type,
          .group_scales = nullptr,
          .group_type = GroupScales::kNone,
          .group = 0,
          .block_rows = 0,
          .row_scales = nullptr,
          .n = n,
          .k = k};
}

TEST(LinearSplit, FillsALargeDeviceWithRangesThatCoverK) {
  // The matrices of Llama 3.3 70B in E4M3: qkv, o, gate and up, down.
  EXPECT_EQ(LinearSplitOf(10240, 8192, ElementType::kF8E4M3).ranges, 4);
  EXPECT_EQ(LinearSplitOf(8192, 8192, ElementType::kF8E4M3).ranges, 4);
  EXPECT_EQ(LinearSplitOf(57344, 8192, ElementType::kF8E4M3).ranges, 1);
  EXPECT_EQ(LinearSplitOf(8192, 28672, ElementType::kF8E4M3).ranges, 4);
  for (const ElementType type : {ElementType::kBF16, ElementType::kF8E4M3, ElementType::kF4E2M1}) {
    // The checks of products rely on these shapes (checks/check_linear.cc).
    EXPECT_GT(LinearSplitOf(20, 4096, type).ranges, 1);
    EXPECT_EQ(LinearSplitOf(70, 96, type).ranges, 1);
    for (const int64_t n : {1, 100, 5120, 202048}) {
      for (int64_t k = 32; k < 20000; k += 992) {
        const LinearSplit split = LinearSplitOf(n, k, type);
        EXPECT_GE(split.stages * LinearStageK(type), k);
        EXPECT_LT((split.stages - 1) * LinearStageK(type), k);
        // Every range has at least one stage.
        EXPECT_GE(split.ranges * split.stages_per_range, split.stages);
        EXPECT_LT((split.ranges - 1) * split.stages_per_range, split.stages);
        EXPECT_LE(split.ranges, 16);
      }
    }
  }
}

TEST(LinearTokenTiles, AreEnoughHoweverRowsFallOnExperts) {
  EXPECT_EQ(LinearTokenTiles(33, 0, 16), 3);
  // One expert with all rows; four experts with one row more than a tile; every expert with one
  // row.
  EXPECT_GE(LinearTokenTiles(64, 8, 16), 4);
  EXPECT_GE(LinearTokenTiles(68, 4, 16), 8);
  EXPECT_EQ(LinearTokenTiles(8, 128, 16), 8);
  EXPECT_EQ(LinearTokenTiles(0, 128, 16), 0);
}

TEST(LinearScratch, IsBoundedInRows) {
  const Weights w = Plain(8192, 8192, ElementType::kF8E4M3);
  EXPECT_EQ(LinearScratchBytes(w, 1), 4 * 8192 * 4);
  EXPECT_EQ(LinearScratchBytes(w, 64), 64 * 4 * 8192 * 4);
  EXPECT_EQ(LinearScratchBytes(w, 100000), LinearScratchBytes(w, 64));
  EXPECT_EQ(LinearScratchBytes(Plain(57344, 8192, ElementType::kF8E4M3), 64), 0);
}

std::string Refusal(const Weights& w) {
  const Status status = CheckLinearWeights(w);
  if (status) return "";
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  return status.error().message;
}

TEST(CheckLinearWeights, TakesTheFormatsOfCheckpoints) {
  EXPECT_EQ(Refusal(Plain(1, 8)), "");
  EXPECT_EQ(Refusal(Plain(5, 48, ElementType::kI8)), "");
  Weights w = Plain(5, 160, ElementType::kF8E4M3);
  w.group_type = GroupScales::kBlock;
  w.group = w.block_rows = 128;
  EXPECT_EQ(Refusal(w), "");
  w = Plain(5, 96, ElementType::kInt4);
  w.group_type = GroupScales::kWithZeros;
  w.group = 32;
  w.block_rows = 1;
  EXPECT_EQ(Refusal(w), "");
  w = Plain(5, 96, ElementType::kF4E2M1);
  w.group_type = GroupScales::kE4M3;
  w.group = 16;
  EXPECT_EQ(Refusal(w), "");
}

TEST(CheckLinearWeights, NamesWhatItRefuses) {
  EXPECT_THAT(Refusal(Plain(0, 8)), HasSubstr("BF16 weights [0, 8]: expected at least one row"));
  EXPECT_THAT(Refusal(Plain(3, 12)), HasSubstr("multiples of 8"));
  EXPECT_THAT(Refusal(Plain(3, 40, ElementType::kF8E4M3)), HasSubstr("multiples of 16"));
  EXPECT_THAT(Refusal(Plain(int64_t{1} << 23, 64)), HasSubstr("at most 4194240 rows"));
  EXPECT_THAT(Refusal(Plain(3, 64, ElementType::kF4E2M1)), HasSubstr("no scales of groups"));
  Weights w = Plain(3, 64, ElementType::kF4E2M1);
  w.group_type = GroupScales::kE8M0;
  w.group = 16;
  EXPECT_THAT(Refusal(w), HasSubstr("E8M0 scales of groups of 16"));
  w.group_type = GroupScales::kE4M3;
  w.group = 32;
  EXPECT_THAT(Refusal(w), HasSubstr("E4M3 scales of groups of 32"));
  w = Plain(3, 64, ElementType::kF8E4M3);
  w.group_type = GroupScales::kBlock;
  w.group = 48;
  w.block_rows = 8;
  EXPECT_THAT(Refusal(w), HasSubstr("blocks of 8 x 48"));
  w.group = 32;
  w.type = ElementType::kI8;
  EXPECT_THAT(Refusal(w), HasSubstr("for E4M3 weights"));
  w = Plain(3, 64, ElementType::kInt4);
  EXPECT_THAT(Refusal(w), HasSubstr("no scales of groups"));
  w.group_type = GroupScales::kWithZeros;
  w.group = 48;
  w.block_rows = 1;
  EXPECT_THAT(Refusal(w), HasSubstr("zero points of 1 x 48"));
  w.group = 32;
  w.type = ElementType::kI8;
  EXPECT_THAT(Refusal(w), HasSubstr("for INT4 weights"));
}

TEST(Int4ScaleWord, KeepsNarrowScalesAndRoundsOthersTo20Bits) {
  const auto scale_of = [](uint32_t word) { return std::bit_cast<float>(word & ~kInt4ZeroMask); };
  // A subnormal number of F16, its largest number, a BF16 number with all mantissa bits set, zero
  // and infinity.
  for (const float scale :
       {0x1p-24f, -65504.0f, 0x1.FEp100f, 0.0f, std::numeric_limits<float>::infinity()}) {
    for (const int zero : {0, 8, 15}) {
      const uint32_t word = Int4ScaleWord(scale, zero);
      EXPECT_EQ(scale_of(word), scale);
      EXPECT_EQ(word & kInt4ZeroMask, static_cast<uint32_t>(zero));
    }
  }
  EXPECT_TRUE(std::isnan(scale_of(Int4ScaleWord(std::numeric_limits<float>::quiet_NaN(), 3))));
  EXPECT_EQ(scale_of(Int4ScaleWord(0x1.00000Ep0f, 5)), 1.0f);  // rounded down by 7/16
  EXPECT_EQ(scale_of(Int4ScaleWord(0x1.000010p0f, 5)), 1.0f);  // a tie, to even
  EXPECT_EQ(scale_of(Int4ScaleWord(0x1.000030p0f, 5)), 0x1.00004p0f);
  EXPECT_EQ(scale_of(Int4ScaleWord(0x1.000012p0f, 5)), 0x1.00002p0f);
}

TEST(CheckLinear, NamesWhatItRefuses) {
  const auto refusal = [](const LinearArgs& args) {
    const Status status = CheckLinear(args);
    return status ? "" : status.error().message;
  };
  LinearArgs args = {};
  args.w = Plain(8, 64);
  args.x_type = args.y_type = ElementType::kBF16;
  args.y_stride = 8;
  EXPECT_EQ(refusal(args), "");
  args.y_stride = 7;
  EXPECT_THAT(refusal(args), HasSubstr("stride 7; expected a stride of 8"));
  args.y_stride = 8;
  args.y_type = ElementType::kF8E4M3;
  EXPECT_THAT(refusal(args), HasSubstr("F8_E4M3 results"));
  args.y_type = ElementType::kF32;
  args.x_type = ElementType::kF32;
  EXPECT_THAT(refusal(args), HasSubstr("F32 inputs"));
  args.x_type = ElementType::kF8E4M3;
  EXPECT_THAT(refusal(args), HasSubstr("F8_E4M3 inputs are for F8_E4M3 weights"));
  args.w.type = ElementType::kF8E4M3;
  EXPECT_THAT(refusal(args), HasSubstr("expected scales of the inputs"));
  const float scale = 1;
  args.x_scales = &scale;
  EXPECT_EQ(refusal(args), "");

  LinearArgs nvf4 = args;
  nvf4.x_type = ElementType::kBF16;
  EXPECT_THAT(refusal(nvf4), HasSubstr("where the weights are NVFP4"));
  nvf4.w.type = ElementType::kF4E2M1;
  nvf4.w.group_type = GroupScales::kE4M3;
  nvf4.w.group = 16;
  nvf4.w.group_scales = &scale;
  EXPECT_EQ(refusal(nvf4), "");
  nvf4.x_type = ElementType::kF4E2M1;
  EXPECT_THAT(refusal(nvf4), HasSubstr("found F4 inputs"));
  nvf4.x_type = ElementType::kBF16;
  nvf4.y_type = ElementType::kF4E2M1;
  EXPECT_THAT(refusal(nvf4), HasSubstr("found F4 results"));

  LinearArgs mxf4 = args;
  mxf4.x_type = ElementType::kBF16;
  mxf4.x_scales = nullptr;
  mxf4.x_is_mxf4 = true;
  EXPECT_THAT(refusal(mxf4), HasSubstr("only where the weights are MXFP4"));
  mxf4.w.type = ElementType::kF4E2M1;
  mxf4.w.group_type = GroupScales::kE8M0;
  mxf4.w.group = 32;
  mxf4.w.group_scales = &scale;
  EXPECT_EQ(refusal(mxf4), "");
  const uint8_t code = 0;
  mxf4.x_codes = &code;
  EXPECT_THAT(refusal(mxf4), HasSubstr("together with scales of their groups"));
  mxf4.x_group_scales = &code;
  EXPECT_EQ(refusal(mxf4), "");
  mxf4.x_is_mxf4 = false;
  EXPECT_THAT(refusal(mxf4), HasSubstr("expected MXFP4 inputs"));

  GroupedLinearArgs grouped = {};
  grouped.linear = args;
  EXPECT_FALSE(CheckGroupedLinear(grouped).has_value());
  const int32_t row_begin[2] = {0, 1};
  grouped.num_experts = 1;
  grouped.row_begin = row_begin;
  EXPECT_TRUE(CheckGroupedLinear(grouped).has_value());
  grouped.codes_stride = 40;
  EXPECT_THAT(CheckGroupedLinear(grouped).error().message, HasSubstr("40 bytes apart"));
}

}  // namespace
}  // namespace sluice::device
