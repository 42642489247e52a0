// dots.llm1: the attention of Qwen3. The first layers have an MLP. The later ones have shared
// experts, and experts chosen by sigmoid scores plus a bias.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace dots1 {
namespace {

// The window applies to layers from max_window_layers on. Source: transformers' Dots1Config.
Status ReadUpperWindows(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  ASSIGN_OR_RETURN(const auto first, fields.Integer("max_window_layers", 0, kMaxConfigLayers));
  const bool is_null = !window && fields.Has("sliding_window");
  constexpr int64_t kDefaultWindow = 4096, kDefaultFirst = 62;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    const bool slides = types
                            ? (*types)[i] == kSlidingAttention
                            : !is_null && static_cast<int64_t>(i) >= first.value_or(kDefaultFirst);
    if (!slides) continue;
    if (is_null) return fields.Missing("sliding_window");
    config.spec.layers[i].attention.span.window =
        static_cast<int32_t>(window.value_or(kDefaultWindow));
  }
  return {};
}

// Source: transformers' Dots1DecoderLayer and Dots1TopkRouter.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadUpperWindows(fields, config));
  ASSIGN_OR_RETURN(const auto dense, fields.Integer("first_k_dense_replace", 0, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const auto shared, fields.Integer("n_shared_experts", 0, kMaxConfigExperts));
  std::optional<MoeSpec> moe;
  if (dense.value_or(0) < config.num_hidden_layers) {
    if (!shared) return fields.Missing("n_shared_experts");
    moe = {.router_module = "mlp.gate",
           .experts_module = "mlp.experts",
           .activation = config.activation,
           .choice_bias = "mlp.gate.e_score_correction_bias"};
    RETURN_IF_ERROR(ReadExpertCounts(fields, {}, *moe));
    RETURN_IF_ERROR(ReadSigmoidRouter(fields, {.normalize = false, .width = 1408}, *moe));
  }
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.mlp.has_bias = false;
    if (static_cast<int64_t>(i) < dense.value_or(0)) continue;
    layer.mlp.module = "mlp.shared_experts";
    layer.mlp.intermediate_size = moe->intermediate_size * *shared;
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 152064,
                                      .hidden_size = 4608,
                                      .intermediate_size = 10944,
                                      .num_hidden_layers = 62,
                                      .num_attention_heads = 32,
                                      .kv_heads = 32,
                                      .max_position_embeddings = 2048};

}  // namespace
}  // namespace dots1

const ModelFamily kDots1 = {
    "Dots1ForCausalLM",
    "dots1",
    dots1::kDefaults,
    dots1::Read,
    {.models = "dots.llm1 142B-A14B",
     .operators =
         "per-head norms; experts with a group-limited sigmoid router, a selection bias and scaled "
         "routing weights; a shared expert; a window in the upper layers, if configured",
     .golden = "tiny-dots1",
     .error = 7.1e-07}};

}  // namespace sluice
