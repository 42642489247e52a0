// Test helpers: configurations of a family with four layers, and fields of the layers that they
// describe.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/json_testing.h"
#include "models/model_config.h"

namespace sluice::testing {

// Returns a configuration of `architecture` with four layers and `changes` applied; null removes a
// field.
inline json::Value With(std::string_view architecture, std::string_view changes) {
  json::Value config = Json(R"({
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "rope_theta": 500000.0, "max_position_embeddings": 131072, "dtype": "bfloat16"})");
  config.Set("architectures", json::Value::Array{std::string(architecture)});
  const json::Value overlay = Json(changes);
  for (const auto& [key, value] : overlay.as_object()) config.Set(key, value);
  return config;
}

inline ModelConfig ParseLayers(std::string_view architecture, std::string_view changes) {
  auto config = ParseModelConfig(With(architecture, changes));
  EXPECT_TRUE(config) << changes << (config ? "" : config.error().message);
  return config ? *std::move(config) : ModelConfig{};
}

inline std::string LayerFailure(std::string_view architecture, std::string_view changes) {
  auto config = ParseModelConfig(With(architecture, changes));
  EXPECT_FALSE(config) << changes;
  return config ? "" : config.error().message;
}

inline std::vector<int64_t> Windows(const ModelConfig& config) {
  std::vector<int64_t> windows;
  for (const LayerSpec& layer : config.spec.layers) windows.push_back(layer.attention.span.window);
  return windows;
}

struct LayerAttention {
  bool rope = true;
  int32_t chunk = 0;

  friend bool operator==(const LayerAttention&, const LayerAttention&) = default;
};

inline std::vector<LayerAttention> Layers(const ModelConfig& config) {
  std::vector<LayerAttention> layers;
  for (const LayerSpec& layer : config.spec.layers)
    layers.push_back({layer.attention.rope, layer.attention.span.chunk});
  return layers;
}

inline std::vector<bool> LayersWithExperts(const ModelConfig& config) {
  std::vector<bool> layers;
  for (const LayerSpec& layer : config.spec.layers) layers.push_back(layer.moe.has_value());
  return layers;
}

inline const MoeSpec& Experts(const ModelConfig& config) {
  return *config.spec.FirstMoeLayer()->moe;
}

inline std::vector<bool> LayersWithRope(const ModelConfig& config) {
  std::vector<bool> layers;
  for (const LayerSpec& layer : config.spec.layers) layers.push_back(layer.attention.rope);
  return layers;
}

}  // namespace sluice::testing
