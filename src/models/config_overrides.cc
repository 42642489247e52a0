#include "models/config_overrides.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json_fields.h"

namespace sluice {
namespace {

constexpr std::string_view kRopeBlocks[] = {"rope_parameters", "rope_scaling"};
constexpr std::string_view kAllowed[] = {
    "rope_scaling", "rope_parameters", "rope_theta", "max_position_embeddings", "sliding_window",
    "use_sliding_window", "max_window_layers", "bos_token_id", "eos_token_id",
    "num_experts_per_tok",
    // Keys that determine how pooling models are used.
    "architectures", "classifier_from_token", "is_original_qwen3_reranker", "method", "num_labels",
    "is_matryoshka", "matryoshka_dimensions"};

void Remove(json::Value& object, std::string_view key) {
  std::erase_if(object.as_object(), [&](const auto& member) { return member.first == key; });
}

// Returns the rope_theta of `config`, inside or outside of a RoPE block.
json::Value ThetaOf(const json::Value& config) {
  for (const std::string_view name : kRopeBlocks) {
    const json::Value* block = config.Find(name);
    const json::Value* theta = block == nullptr ? nullptr : block->Find("rope_theta");
    if (theta != nullptr) return *theta;
  }
  const json::Value* theta = config.Find("rope_theta");
  return theta == nullptr ? json::Value() : *theta;
}

void ReplaceRope(json::Value& config, json::Value block) {
  if (block.is_object() && block.Find("rope_theta") == nullptr) {
    if (json::Value theta = ThetaOf(config); !theta.is_null())
      block.Set("rope_theta", std::move(theta));
  } else if (block.is_null()) {  // there is no scaling
    if (json::Value theta = ThetaOf(config); !theta.is_null()) config.Set("rope_theta", theta);
  }
  for (const std::string_view name : kRopeBlocks) Remove(config, name);
  config.Set("rope_parameters", std::move(block));
}

// Replaces rope_theta wherever the file sets it; a leftover would take precedence.
void ReplaceTheta(json::Value& config, const json::Value& theta) {
  for (const std::string_view name : kRopeBlocks) {
    const json::Value* block = config.Find(name);
    if (block == nullptr || !block->is_object()) continue;
    json::Value changed = *block;
    Remove(changed, "rope_theta");
    config.Set(name, std::move(changed));
  }
  config.Set("rope_theta", theta);
}

Status Override(json::Value& config, const json::Value& overrides) {
  for (const auto& [key, value] : overrides.as_object()) {
    if (std::find(std::begin(kAllowed), std::end(kAllowed), key) == std::end(kAllowed)) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("--hf-overrides: {} cannot be overridden, because the weights depend "
                              "on its value in config.json; these keys can be overridden: {}",
                              ShortName(key), fmt::join(kAllowed, ", ")),
                  "hf-overrides");
    }
    if (key == "rope_theta") continue;
    if (key == "rope_scaling" || key == "rope_parameters") {
      ReplaceRope(config, value);
    } else {
      config.Set(key, value);
    }
  }
  // Applied after the RoPE block, because the block contains rope_theta.
  if (const json::Value* theta = overrides.Find("rope_theta")) ReplaceTheta(config, *theta);
  return {};
}

}  // namespace

Result<json::Value> OverrideConfig(json::Value config, const json::Value& overrides) {
  const json::Value* text = config.Find("text_config");
  if (text == nullptr || !text->is_object()) {
    RETURN_IF_ERROR(Override(config, overrides));
    return config;
  }
  json::Value inner = *text;
  json::Value outer = overrides;
  if (const json::Value* nested = overrides.Find("text_config"); nested != nullptr) {
    if (!nested->is_object()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--hf-overrides: text_config must be an object, found {}",
                              ShortText(*nested)),
                  "hf-overrides");
    }
    RETURN_IF_ERROR(Override(inner, *nested));
    Remove(outer, "text_config");
  }
  RETURN_IF_ERROR(Override(inner, outer));
  config.Set("text_config", std::move(inner));
  return config;
}

}  // namespace sluice
