// Llama 4, the text model. Layers that attend within chunks of positions have interleaved RoPE
// followed by an unweighted norm of q and k; layers that attend to all positions have neither, but
// have temperature tuning. The expert with the largest logit is chosen, and the logit's sigmoid
// scales the expert's input. There is also a shared expert.
#include <algorithm>

#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace llama4 {
namespace {

constexpr const char* kChunkedAttention = "chunked_attention";

Result<std::optional<TemperatureTuning>> ReadTemperatureTuning(const JsonFields& fields) {
  // Older files have a number in this field; any value except 0 and false turns temperature tuning
  // on.
  const json::Value* tuning = fields.Given("attn_temperature_tuning");
  if (tuning != nullptr && !tuning->is_bool() && !tuning->is_integer())
    return fields.Bad("attn_temperature_tuning", "true, false or an integer", *tuning);
  const bool tunes =
      tuning == nullptr || (tuning->is_bool() ? tuning->as_bool() : tuning->as_integer() != 0);
  constexpr double kDefaultFloor = 8192, kDefaultScale = 0.1;
  ASSIGN_OR_RETURN(const auto floor_scale, fields.Number("floor_scale", 1, 1e9));
  ASSIGN_OR_RETURN(const auto attn_scale, fields.Number("attn_scale", 0, 1e3));
  if (!tunes) return std::nullopt;
  return TemperatureTuning{.floor_scale = floor_scale.value_or(kDefaultFloor),
                           .attn_scale = attn_scale.value_or(kDefaultScale)};
}

Status ReadAttention(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<bool> rope, ReadRopeLayers(fields, config));
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kChunkedAttention}));
  ASSIGN_OR_RETURN(const auto chunk,
                   fields.Integer("attention_chunk_size", 1, kMaxConfigPositions));
  constexpr int64_t kDefaultChunk = 8192;
  // If the field is null, every layer attends to all positions.
  const bool has_chunks = chunk || !fields.Has("attention_chunk_size");
  ASSIGN_OR_RETURN(const auto qk_norm, fields.Bool("use_qk_norm"));
  ASSIGN_OR_RETURN(const auto tuning, ReadTemperatureTuning(fields));
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    AttentionSpec& attention = config.spec.layers[i].attention;
    attention.rope_style = kernels::RopeStyle::kInterleaved;
    attention.rope = rope[i];
    if (types ? (*types)[i] == kChunkedAttention : rope[i] && has_chunks)
      attention.span.chunk = static_cast<int32_t>(chunk.value_or(kDefaultChunk));
    if (!attention.rope)
      attention.temperature_tuning = tuning;
    else if (qk_norm.value_or(true))
      attention.qk_norm = QkNorm::kAfterRopeUnweighted;
  }
  return {};
}

// Source: transformers' Llama4TextConfig.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadAttention(fields, config));
  MoeSpec moe = {.router_module = "feed_forward.router",
                 .experts_module = "feed_forward.experts",
                 .fused_transposed = true,
                 .intermediate_size = config.intermediate_size,
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSigmoid,
                 .scale_inputs = true};
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.num_experts = 16, .top_k = 1}, moe));
  ASSIGN_OR_RETURN(const auto step,
                   fields.Integer("interleave_moe_layer_step", 1, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const auto given, ReadLayerSet(fields, config, "moe_layers"));
  ASSIGN_OR_RETURN(const auto dense, fields.Integer("intermediate_size_mlp", 1, kMaxConfigWidth));
  constexpr int64_t kDefaultDense = 16384;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.mlp.has_bias = false;
    const bool has_experts =
        given ? bool{(*given)[i]} : static_cast<int64_t>(i + 1) % step.value_or(1) == 0;
    if (has_experts) {
      // The shared expert has the same width as the other experts.
      layer.mlp.module = "feed_forward.shared_expert";
      layer.moe = moe;
    } else {
      layer.mlp.module = "feed_forward";
      layer.mlp.intermediate_size = dense.value_or(kDefaultDense);
    }
  }
  config.intermediate_size = dense.value_or(config.spec.NumMoeLayers() == config.num_hidden_layers
                                                ? config.intermediate_size
                                                : kDefaultDense);
  return {};
}

constexpr ConfigDefaults DefaultsOf(bool is_nested) {
  return {.vocab_size = 202048,
          .hidden_size = 5120,
          .intermediate_size = 8192,
          .num_hidden_layers = 48,
          .num_attention_heads = 40,
          .kv_heads = 8,
          .head_dim = 128,
          .max_position_embeddings = 131072,
          .rms_norm_eps = 1e-5,
          .rope_theta = 500000,
          .bos_token_id = 1,
          .eos_token_id = 2,
          .is_nested = is_nested};
}

}  // namespace
}  // namespace llama4

const ModelFamily kLlama4 = {
    "Llama4ForConditionalGeneration",
    "llama4",
    llama4::DefaultsOf(true),
    llama4::Read,
    {.models = "Llama 4 Scout",
     .operators = "like Llama4ForCausalLM; images: tiles, a class token, "
                  "2-D rope, pixel shuffle",
     .golden = "llama4-quark-fp8, llama4-modelopt-nvfp4, tiny-llama4-vision",
     .error = 5.4e-06}};
const ModelFamily kLlama4Text = {
    "Llama4ForCausalLM",
    "llama4_text",
    llama4::DefaultsOf(false),
    llama4::Read,
    {.models = "the text part of Llama 4",
     .operators = "interleaved rope; chunked attention; a temperature in layers without rope; "
                  "experts whose inputs are scaled by the router's sigmoids; a shared expert",
     .golden = "tiny-llama4-mixed",
     .error = 1.3e-06}};

}  // namespace sluice
