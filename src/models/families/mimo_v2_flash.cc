// MiMo-V2-Flash: values have a different width than keys, and are scaled; RoPE on a third of each
// head. Most layers have a window, twice as many KV heads, separate RoPE settings, and a learned
// score per head (sinks). After the first layer, layers have experts as in DeepSeek V3, without a
// shared expert.
#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/kind_ropes.h"
#include "models/registry.h"

namespace sluice {
namespace mimo_v2_flash {
namespace {

// Reads which layers have a window. In published files (sliding_window_size) the window does not
// include the token itself.
Result<std::vector<bool>> ReadWindows(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  ASSIGN_OR_RETURN(const auto before,
                   fields.Integer("sliding_window_size", 0, kMaxConfigPositions - 1));
  if (before) window = *before + 1;
  constexpr int64_t kDefaultWindow = 129;
  constexpr size_t kPattern = 6;
  std::vector<bool> slides;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    slides.push_back(types ? (*types)[i] == kSlidingAttention : i > 0 && (i + 1) % kPattern != 0);
    if (slides.back()) {
      config.spec.layers[i].attention.span.window =
          static_cast<int32_t>(window.value_or(kDefaultWindow));
    }
  }
  return slides;
}

// Source: transformers' MiMoV2FlashAttention.
Status ReadHeads(const JsonFields& fields, const std::vector<bool>& slides, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto width, fields.Integer("v_head_dim", 1, kMaxConfigWidth));
  const int64_t value_dim = width.value_or(128);
  if (value_dim > config.head_dim) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("v_head_dim {} is not supported; supported are numbers up to head_dim "
                            "{}",
                            value_dim, config.head_dim),
                "v_head_dim");
  }
  ASSIGN_OR_RETURN(const auto factor, fields.Number("attention_value_scale", 1e-6, 1e6));
  const bool has_factor = factor || !fields.Has("attention_value_scale");
  const int64_t window_heads = 2 * config.num_key_value_heads;
  for (size_t i = 0; i < slides.size(); ++i) {
    AttentionSpec& attention = config.spec.layers[i].attention;
    if (value_dim < config.head_dim) attention.narrow_value_dim = static_cast<int>(value_dim);
    if (has_factor) attention.output_factor = static_cast<float>(factor.value_or(0.707));
    attention.output_bias = false;
    if (!slides[i]) continue;
    if (config.num_attention_heads % window_heads != 0) {
      return fields.Bad(
          "num_key_value_heads",
          fmt::format("a divisor of half of num_attention_heads {}", config.num_attention_heads),
          json::Value(config.num_key_value_heads));
    }
    attention.num_kv_heads = static_cast<int>(window_heads);
    attention.sinks = true;
    attention.sinks_tensor = "attention_sink_bias";
  }
  return {};
}

// Source: transformers' MiMoV2FlashConfig and MiMoV2FlashMoE.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<bool> slides, ReadWindows(fields, config));
  RETURN_IF_ERROR(ReadKindRopes(
      fields, {.full = {.theta = 5e6, .part = 0.334}, .sliding = {.theta = 10000, .part = 0.334}},
      slides, config));
  RETURN_IF_ERROR(ReadHeads(fields, slides, config));
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation,
                 .choice_bias = "mlp.gate.e_score_correction_bias"};
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.num_experts = 256, .top_k = 8}, moe));
  RETURN_IF_ERROR(ReadSigmoidRouter(fields, {.width = 2048}, moe));
  ASSIGN_OR_RETURN(const std::vector<bool> sparse, ReadMlpLayerTypes(fields, config, 1));
  for (size_t i = 0; i < slides.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.mlp.has_bias = false;
    if (!sparse[i]) continue;
    layer.mlp.intermediate_size = 0;
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 152576,
                                      .hidden_size = 4096,
                                      .intermediate_size = 16384,
                                      .num_hidden_layers = 48,
                                      .num_attention_heads = 64,
                                      .kv_heads = 4,
                                      .head_dim = 192,
                                      .max_position_embeddings = 131072,
                                      .rms_norm_eps = 1e-5,
                                      .rope_theta = 5e6,
                                      .bos_token_id = 1};

}  // namespace
}  // namespace mimo_v2_flash

const ModelFamily kMimoV2Flash = {
    "MiMoV2FlashForCausalLM",
    "mimo_v2_flash",
    mimo_v2_flash::kDefaults,
    mimo_v2_flash::Read,
    {.models = "MiMo-V2-Flash",
     .operators = "values narrower than keys, with a multiplier; rope on a third of a head; "
                  "windows in some layers, with more key heads, their own rope and attention "
                  "sinks; experts with a sigmoid router and a selection bias",
     .golden = "tiny-mimo-v2-flash",
     .error = 6.5e-07}};

}  // namespace sluice
