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

// Reads a window that all layers have; one that is null or absent is none.
Status ReadWindow(const JsonFields& fields, ModelConfig& config);

// Reads the windows of layers as Qwen 2 and 3 spell them.
Status ReadSlidingAttention(const JsonFields& fields, ModelConfig& config);

// Which layers rotate q and k, as Llama 4 and SmolLM3 spell it. In no_rope_layers a 1 stands for a
// layer WITH rope.
Result<std::vector<bool>> ReadRopeLayers(const JsonFields& fields, const ModelConfig& config);

// Reads rope_parameters that has a block for each kind of layer, as transformers 5 writes it: that
// of layers that see everything into config.rope, that of layers with a window into `local`. False
// where there are no such blocks, and nothing is read.
Result<bool> ReadRopeBlocks(const JsonFields& fields, double default_local_theta,
                            ModelConfig& config, RopeConfig& local);

// Indices of layers, as a flag for each layer; nullopt where not given.
Result<std::optional<std::vector<bool>>> ReadLayerSet(const JsonFields& fields,
                                                      const ModelConfig& config,
                                                      std::string_view name);

// Which layers have experts, as Qwen's families spell it.
Result<std::vector<bool>> ReadSparseLayers(const JsonFields& fields, const ModelConfig& config);

// kUnsupported that names `key` for a width of heads that the attention kernels do not take.
Status CheckHeadWidth(int64_t head_dim, const char* key);

// Reads the number of experts and how many of them a token visits into `moe`.
Status ReadExpertCounts(const JsonFields& fields, std::optional<int64_t> default_top_k,
                        MoeSpec& moe);

}  // namespace sluice
