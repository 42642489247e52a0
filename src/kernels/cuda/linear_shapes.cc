#include "kernels/cuda/linear_shapes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>

#include <fmt/format.h>

#include "base/check.h"
#include "tensor/element_type.h"

namespace sluice::device {
namespace {

bool IsOneOf(ElementType type, std::initializer_list<ElementType> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

tl::unexpected<Error> Refuse(const Weights& w, const std::string& what) {
  return Fail(ErrorCode::kUnsupported,
              fmt::format("device kernels cannot multiply {} weights [{}, {}]: {}",
                          ElementTypeName(w.type), w.n, w.k, what));
}

}  // namespace

int64_t LinearScratchBytes(const Weights& w, int64_t max_m) {
  const LinearSplit split = LinearSplitOf(w);
  if (split.ranges == 1) return 0;
  return split.ranges * std::min(max_m, kMaxParallelSplitRows) * w.n *
         static_cast<int64_t>(sizeof(float));
}

uint32_t Int4ScaleWord(float scale, int zero_point) {
  CHECK(zero_point >= 0 && zero_point <= static_cast<int>(kInt4ZeroMask));
  auto bits = std::bit_cast<uint32_t>(scale);
  // Rounds to nearest, ties to even.
  if (std::isfinite(scale)) bits += kInt4ZeroMask / 2 + (bits >> 4 & 1);
  return (bits & ~kInt4ZeroMask) | static_cast<uint32_t>(zero_point);
}

Status CheckLinearWeights(const Weights& w) {
  // A grid has at most 65535 tiles of rows.
  constexpr int64_t kMostRows = int64_t{65535} * kLinearTileRows;
  if (w.n < 1 || w.k < 1) return Refuse(w, "expected at least one row and one column");
  if (w.n > kMostRows) return Refuse(w, fmt::format("expected at most {} rows", kMostRows));
  if (!IsOneOf(w.type, {ElementType::kBF16, ElementType::kF8E4M3, ElementType::kI8,
                        ElementType::kInt4, ElementType::kF4E2M1})) {
    return Refuse(w, "expected weights of BF16, F8_E4M3, I8, INT4 or F4_E2M1");
  }
  const int per_chunk = 128 / LinearCodeBits(w.type);
  if (w.k % per_chunk != 0) {
    return Refuse(w, fmt::format("expected columns in multiples of {}, so that rows are "
                                 "multiples of 16 bytes",
                                 per_chunk));
  }
  switch (w.group_type) {
    case GroupScales::kNone:
      if (w.type == ElementType::kF4E2M1)
        return Refuse(w, "found no scales of groups; expected E4M3 ones of 16 or E8M0 ones of 32");
      if (w.type == ElementType::kInt4)
        return Refuse(w, "found no scales of groups; expected F32 ones with zero points");
      break;
    case GroupScales::kE4M3:
      if (w.type != ElementType::kF4E2M1 || w.group != 16)
        return Refuse(w, fmt::format("found E4M3 scales of groups of {}; expected them for E2M1 "
                                     "weights and groups of 16",
                                     w.group));
      break;
    case GroupScales::kE8M0:
      if (w.type != ElementType::kF4E2M1 || w.group != 32)
        return Refuse(w, fmt::format("found E8M0 scales of groups of {}; expected them for E2M1 "
                                     "weights and groups of 32",
                                     w.group));
      break;
    case GroupScales::kBlock:
      if (w.type != ElementType::kF8E4M3 || w.group < 32 || w.group % 32 != 0 || w.block_rows < 1) {
        return Refuse(w, fmt::format("found scales of blocks of {} x {}; expected them for E4M3 "
                                     "weights and columns in multiples of 32",
                                     w.block_rows, w.group));
      }
      break;
    case GroupScales::kWithZeros:
      if (w.type != ElementType::kInt4 || w.group < 32 || w.group % 32 != 0 || w.block_rows != 1) {
        return Refuse(w, fmt::format("found scales with zero points of {} x {}; expected them for "
                                     "INT4 weights and groups of a row in multiples of 32",
                                     w.block_rows, w.group));
      }
      break;
  }
  return {};
}

Status CheckLinear(const LinearArgs& args) {
  RETURN_IF_ERROR(CheckLinearWeights(args.w));
  if ((args.w.group_type == GroupScales::kNone) != (args.w.group_scales == nullptr))
    return Refuse(args.w, "expected scales of groups exactly where the format has groups");
  if (!IsOneOf(args.x_type, {ElementType::kBF16, ElementType::kF8E4M3})) {
    return Refuse(args.w, fmt::format("found {} inputs; expected BF16 or F8_E4M3",
                                      ElementTypeName(args.x_type)));
  }
  if (args.x_type == ElementType::kF8E4M3 &&
      (args.w.type != ElementType::kF8E4M3 || args.w.group_type != GroupScales::kNone)) {
    return Refuse(args.w,
                  "F8_E4M3 inputs are for F8_E4M3 weights with scales of rows; expected BF16 "
                  "inputs");
  }
  const bool is_nvf4 =
      args.w.type == ElementType::kF4E2M1 && args.w.group_type == GroupScales::kE4M3;
  if (args.x_type == ElementType::kF8E4M3 ? args.x_scales == nullptr
                                          : args.x_scales != nullptr && !is_nvf4)
    return Refuse(args.w,
                  "expected scales of the inputs where those are E4M3, and else at most "
                  "where the weights are NVFP4");
  const bool is_mxf4 =
      args.w.type == ElementType::kF4E2M1 && args.w.group_type == GroupScales::kE8M0;
  if (args.x_is_mxf4 ? !is_mxf4 || args.x_type != ElementType::kBF16 : args.x_codes != nullptr)
    return Refuse(args.w, "expected MXFP4 inputs, in BF16, only where the weights are MXFP4");
  if ((args.x_codes == nullptr) != (args.x_group_scales == nullptr))
    return Refuse(args.w, "expected codes of the inputs together with scales of their groups");
  if (!IsOneOf(args.y_type, {ElementType::kF32, ElementType::kBF16})) {
    return Refuse(args.w, fmt::format("found {} results; expected F32 or BF16",
                                      ElementTypeName(args.y_type)));
  }
  if (args.m < 0 || args.y_stride < args.w.n) {
    return Refuse(args.w, fmt::format("found {} rows of results with stride {}; expected a stride "
                                      "of {} or more",
                                      args.m, args.y_stride, args.w.n));
  }
  return {};
}

Status CheckGroupedLinear(const GroupedLinearArgs& args) {
  RETURN_IF_ERROR(CheckLinear(args.linear));
  const Weights& w = args.linear.w;
  if (args.num_experts < 1 || args.row_begin == nullptr)
    return Refuse(w, "expected at least one expert, and where its rows begin");
  if (args.linear.bias != nullptr) return Refuse(w, "found a bias, which experts cannot share");
  if (args.codes_stride % 16 != 0)
    return Refuse(w, fmt::format("found experts {} bytes apart; expected a multiple of 16",
                                 args.codes_stride));
  return {};
}

bool CanMultiplyByGroups(const LinearArgs& args) {
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0;
  };
  return args.w.type == ElementType::kF8E4M3 && args.w.group_type == GroupScales::kNone &&
         args.x_type == ElementType::kF8E4M3 && is_aligned(args.w.codes) && is_aligned(args.x);
}

}  // namespace sluice::device
