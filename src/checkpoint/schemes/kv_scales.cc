// Finds the scales of keys and values under the names that different tools use.
#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "checkpoint/schemes/linear_layout.h"
#include "checkpoint/schemes/scalar_tensor.h"

namespace sluice {
namespace {

// Suffixes that follow "model.layers.0.self_attn" in tensor names.
constexpr std::array<std::string_view, 7> kKeyNames = {
    ".k_proj.k_scale",     ".k_scale",       ".k_proj.output_scale", ".qkv_proj.k_scale",
    ".qkqkv_proj.k_scale", ".k_cache.scale", ".attn.k_scale"};
constexpr std::array<std::string_view, 7> kValueNames = {
    ".v_proj.v_scale",    ".v_scale",       ".v_proj.output_scale", ".qkv_proj.v_scale",
    ".qkvv_proj.v_scale", ".v_cache.scale", ".attn.v_scale"};
constexpr std::string_view kBothName = ".kv_scale";

Result<std::optional<float>> FindScale(const Checkpoint& checkpoint, const std::string& attention,
                                       std::span<const std::string_view> names, KvScales& scales) {
  std::optional<float> value;
  const StoredTensor* first = nullptr;
  const auto look = [&](std::string_view name) -> Status {
    const StoredTensor* tensor = checkpoint.Find(attention + std::string(name));
    if (tensor == nullptr) return {};
    ASSIGN_OR_RETURN(const float found, ReadScaleScalar(*tensor));
    if (value && *value != found) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("tensors '{}' ({}) and '{}' ({}) are scales of the same cache",
                              first->info->name, *value, tensor->info->name, found),
                  tensor->info->name);
    }
    value = found;
    first = tensor;
    scales.tensors.push_back(tensor);
    return {};
  };
  for (const std::string_view name : names) RETURN_IF_ERROR(look(name));
  if (!value) RETURN_IF_ERROR(look(kBothName));
  return value;
}

bool IsAllZero(const StoredTensor& tensor) {
  const auto bytes = tensor.bytes();
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

Result<KvScales> FindStoredKvScales(const Checkpoint& checkpoint, const std::string& attention) {
  KvScales scales;
  ASSIGN_OR_RETURN(const auto key, FindScale(checkpoint, attention, kKeyNames, scales));
  ASSIGN_OR_RETURN(const auto value, FindScale(checkpoint, attention, kValueNames, scales));
  scales.stored = key || value;
  // If only the scale of keys or of values is stored, it applies to both.
  if (scales.stored) {
    scales.k = key ? *key : *value;
    scales.v = value ? *value : *key;
  }
  return scales;
}

bool IsSuperfluousScale(const Checkpoint& checkpoint, std::string_view tensor) {
  constexpr std::array<std::string_view, 6> kUnused = {
      ".self_attn.q_scale", ".self_attn.q_proj.output_scale", ".self_attn.prob_output_scale",
      ".self_attn.q.scale", ".self_attn.attn.q_scale",        ".self_attn.q_proj.q_scale"};
  if (std::any_of(kUnused.begin(), kUnused.end(),
                  [&](std::string_view suffix) { return tensor.ends_with(suffix); })) {
    return true;
  }
  // No layer has used this zero point. A value other than 0 would affect the results.
  const StoredTensor* stored = checkpoint.Find(tensor);
  return tensor.ends_with("_zero_point") && stored != nullptr && IsAllZero(*stored);
}

}  // namespace sluice
