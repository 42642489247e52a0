#include "checkpoint/schemes/int4_settings.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json_fields.h"
#include "checkpoint/schemes/settings.h"

namespace sluice {
namespace {

// Returns the first of `keys` that the block has; keys[0] if it has none.
std::string_view PresentKey(const json::Value& block,
                            std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const json::Value* value = block.Find(key);
    if (value != nullptr && !value->is_null()) return key;
  }
  return *keys.begin();
}

}  // namespace

Result<int64_t> ReadIntegerBits(const json::Value& block, const std::string& where,
                                std::initializer_list<std::string_view> keys,
                                std::initializer_list<int64_t> allowed) {
  const std::string_view key = PresentKey(block, keys);
  ASSIGN_OR_RETURN(const int64_t bits, JsonFields(block, where + ".").RequiredInteger(key, 1, 64));
  if (std::find(allowed.begin(), allowed.end(), bits) != allowed.end()) return bits;
  return UnsupportedSetting(
      where, key, json::Value(bits),
      fmt::format("{}; use a checkpoint of the model with 4 bits, FP8, INT8 (W8A8) or BF16",
                  fmt::join(allowed, " or ")));
}

Result<int64_t> ReadInt4GroupSize(const json::Value& block, const std::string& where,
                                  std::initializer_list<std::string_view> keys) {
  const std::string_view key = PresentKey(block, keys);
  ASSIGN_OR_RETURN(const int64_t size,
                   JsonFields(block, where + ".").RequiredInteger(key, -1, 1 << 20));
  if (size == -1 || (size > 0 && size % 32 == 0)) return size;
  return UnsupportedSetting(where, key, json::Value(size),
                            "-1 (a scale for each output) or a multiple of 32");
}

LinearLayout Int4GroupLayout(int64_t group_size) {
  const bool has_groups = group_size > 0;
  return {.name = "INT4",
          .format = {.type = ElementType::kInt4,
                     .scale_layout = has_groups ? DataFormat::ScaleLayout::kPerGroup
                                                : DataFormat::ScaleLayout::kPerRow,
                     .scale_type = ElementType::kF16,
                     .group_size = has_groups ? static_cast<int>(group_size) : 0},
          .data = "qweight",
          .scales = {"scales"},
          .is_in_words = true,
          .words = {.transposed = true, .zero_points = "qzeros"}};
}

std::string IntegerText(const LinearLayout& layout) {
  const DataFormat& format = layout.format;
  return fmt::format(
      "INT{} {}{}{}", BitsPerElement(format.type),
      format.group_size == 0 ? "per row" : fmt::format("in groups of {}", format.group_size),
      format.has_zero_points ? ", asymmetric" : "",
      format.has_input_order ? ", inputs reordered" : "");
}

}  // namespace sluice
