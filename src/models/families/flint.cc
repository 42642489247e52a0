// Flint: per-head norms of q and k; a learned score per head (sinks). Most layers have a window and
// RoPE; the others have neither. The first two layers have an MLP. The later ones have a shared
// expert, and experts chosen by sigmoid scores, with weights normalized to a sum of 1.
#include <algorithm>

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace flint {
namespace {

constexpr int64_t kDefaultWindow = 513;
constexpr int64_t kDefaultSharedWidth = 1024;
constexpr size_t kDenseLayers = 2;

// Source: transformers' FlintConfig, FlintAttention and FlintSparseMoeBlock.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSigmoid};
  RETURN_IF_ERROR(
      ReadExpertCounts(fields, {.num_experts = 256, .top_k = 6, .intermediate_size = 512}, moe));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  moe.normalize = normalize.value_or(true);
  ASSIGN_OR_RETURN(const auto shared,
                   fields.Integer("shared_expert_intermediate_size", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(std::vector<bool> sparse, ReadSparseLayers(fields, config));
  if (fields.Given("mlp_only_layers") == nullptr)
    for (size_t i = 0; i < std::min(kDenseLayers, sparse.size()); ++i) sparse[i] = false;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    const bool sees_all = types ? (*types)[i] == kFullAttention
                                : i < 2 || i % 4 == 1 || i + 1 == config.spec.layers.size();
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.attention.sinks = true;
    layer.attention.sinks_tensor = "softmax_offset";
    layer.attention.rope = !sees_all;
    if (!sees_all)
      layer.attention.span.window = static_cast<int32_t>(window.value_or(kDefaultWindow));
    layer.mlp.has_bias = false;
    if (!sparse[i]) continue;
    layer.mlp.module = "mlp.shared_expert";
    layer.mlp.intermediate_size = shared.value_or(kDefaultSharedWidth);
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 150144,
                                      .hidden_size = 2048,
                                      .intermediate_size = 6144,
                                      .num_hidden_layers = 49,
                                      .num_attention_heads = 32,
                                      .kv_heads = 4,
                                      .head_dim = 128,
                                      .max_position_embeddings = 262144};

}  // namespace
}  // namespace flint

const ModelFamily kFlint = {
    "FlintForCausalLM",
    "flint",
    flint::kDefaults,
    flint::Read,
    {.models = "Flint",
     .operators = "per-head norms; attention sinks; windows; no rope in layers without a window; "
                  "experts with a sigmoid router and normalized routing weights; a shared expert",
     .golden = "tiny-flint",
     .error = 1.8e-06}};

}  // namespace sluice
