// Readers of config.json fields that several families share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fields.h"
#include "base/result.h"
#include "models/model_config.h"

namespace sluice {

// Names in layer_types.
constexpr const char* kFullAttention = "full_attention";
constexpr const char* kSlidingAttention = "sliding_attention";

// Bounds that keep every product of two dimensions far inside 64 bits; published models are well
// below them.
constexpr int64_t kMaxConfigPositions = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxConfigWidth = int64_t{1} << 20;
constexpr int64_t kMaxConfigLayers = 4096;

// layer_types, one for each layer, of `kinds` only; nullopt where not given.
Result<std::optional<std::vector<std::string>>> ReadLayerTypes(
    const JsonFields& fields, const ModelConfig& config, const std::vector<std::string>& kinds);

// Checks that every layer sees all positions.
Status ReadFullAttention(const JsonFields& fields, const ModelConfig& config);

// Reads the windows of layers as Qwen 2 and 3 spell them.
Status ReadSlidingAttention(const JsonFields& fields, ModelConfig& config);

// Indices of layers, as a flag for each layer; nullopt where not given.
Result<std::optional<std::vector<bool>>> ReadLayerSet(const JsonFields& fields,
                                                      const ModelConfig& config,
                                                      std::string_view name);

// Reads the number of experts and how many of them a token visits into `moe`.
Status ReadExpertCounts(const JsonFields& fields, std::optional<int64_t> default_top_k,
                        MoeSpec& moe);

}  // namespace sluice
