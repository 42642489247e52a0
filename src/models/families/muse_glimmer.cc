// Muse Glimmer, the text part: norms before and after every sublayer, whose weights w stand for 1 +
// w; a norm of the embeddings; per-head norms without weights; a gate after attention. Most layers
// have a window; the others have no RoPE. Logits are scaled and soft-capped.
#include <algorithm>
#include <cmath>

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace muse_glimmer {
namespace {

// A layer whose base is 0 has no RoPE; the others have the base in rope_parameters. Source:
// transformers' MuseGlimmerTextModel.
Result<std::optional<std::vector<bool>>> ReadRopes(const JsonFields& fields,
                                                   const ModelConfig& config) {
  constexpr const char* kField = "layer_rope_theta";
  ASSIGN_OR_RETURN(const json::Value::Array* list, fields.Array(kField));
  if (list == nullptr) return std::nullopt;
  std::vector<bool> ropes;
  for (const json::Value& value : *list) {
    if (!value.is_number()) return fields.Bad(kField, "a list of numbers", value);
    ropes.push_back(value.as_double() != 0);
  }
  if (std::ssize(ropes) == config.num_hidden_layers) return ropes;
  return fields.Bad(kField, "a number for each layer", *fields.Given(kField));
}

// Reads the token ids for images and videos, which are outside text_config. Source: transformers'
// MuseGlimmerModel.
Status ReadPlaceholders(ModelConfig& config) {
  const JsonFields outer(config.raw, "");
  const auto read = [&](const char* name, int64_t absent) -> Result<int32_t> {
    ASSIGN_OR_RETURN(const auto given, outer.Integer(name, 0, kMaxConfigPositions));
    const int64_t token = given.value_or(absent);
    return token < config.vocab_size ? static_cast<int32_t>(token) : -1;
  };
  ASSIGN_OR_RETURN(const int32_t image, read("image_token_id", 200092));
  ASSIGN_OR_RETURN(const int32_t video, read("video_token_id", 200091));
  config.spec.placeholders = {std::max(image, video), std::min(image, video)};
  return {};
}

// Source: transformers' MuseGlimmerTextConfig, MuseGlimmerTextAttention and
// MuseGlimmerForConditionalGeneration.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadPlaceholders(config));
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  ASSIGN_OR_RETURN(const auto ropes, ReadRopes(fields, config));
  ASSIGN_OR_RETURN(const auto qk_scale, fields.Number("qk_scale_factor", 1e-6, 1e6));
  ASSIGN_OR_RETURN(const auto multiplier, fields.Number("output_multiplier", 1e-6, 1e6));
  ASSIGN_OR_RETURN(const auto cap, fields.Number("final_logit_softcapping", 1e-3, 1e6));
  ASSIGN_OR_RETURN(const auto after_eps, fields.Number("post_norm_eps", 0, 1));
  constexpr int64_t kDefaultWindow = 2048, kPattern = 4;
  DecoderSpec& spec = config.spec;
  spec.norm_weight_offset = 1;
  spec.final_norm_offset = 0.0f;
  spec.after_norm_eps = static_cast<float>(after_eps.value_or(1e-8));
  spec.norms_embedding = true;
  spec.logit_scale = static_cast<float>(multiplier.value_or(0.19611613513818404));
  spec.logit_soft_cap = static_cast<float>(cap.value_or(20));
  const double root = std::sqrt(static_cast<double>(config.head_dim));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.attention_norms = {.before = "input_layernorm", .after = "post_attention_layernorm"};
    layer.mlp_norms = {.before = "pre_feedforward_layernorm",
                       .after = "post_feedforward_layernorm"};
    layer.attention.qk_norm = QkNorm::kAfterRopeUnweighted;
    layer.attention.scale = static_cast<float>(qk_scale.value_or(3.87) / root);
    layer.attention.gate = AttentionGate::kEachNumber;
    layer.mlp.has_bias = false;
    // Whether the layer is one of every kPattern layers, counted backwards from the last layer.
    const bool is_fourth = (config.num_hidden_layers - 1 - static_cast<int64_t>(i)) % kPattern == 0;
    layer.attention.rope = ropes ? bool{(*ropes)[i]} : !is_fourth;
    if (types ? (*types)[i] == kSlidingAttention : !is_fourth) {
      if (!window && fields.Has("sliding_window")) return fields.Missing("sliding_window");
      layer.attention.span.window = static_cast<int32_t>(window.value_or(kDefaultWindow));
    }
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 202048,
                                      .hidden_size = 6656,
                                      .intermediate_size = 19968,
                                      .num_hidden_layers = 52,
                                      .num_attention_heads = 32,
                                      .kv_heads = 2,
                                      .head_dim = 128,
                                      .max_position_embeddings = 131072,
                                      .rms_norm_eps = 1e-5,
                                      .bos_token_id = 200000,
                                      .eos_token_id = 200001,
                                      .is_nested = true};

}  // namespace
}  // namespace muse_glimmer

const ModelFamily kMuseGlimmer = {
    "MuseGlimmerForConditionalGeneration",
    "muse_glimmer",
    muse_glimmer::kDefaults,
    muse_glimmer::Read,
    {.models = "Muse Glimmer 30B",
     .operators = "the text part: norms that scale by 1 + w before and after sublayers, after the "
                  "embedding and per head; a gate after attention; windows; no rope in layers "
                  "without a window; scaled logits with a soft cap",
     .golden = "tiny-muse-glimmer",
     .error = 3.2e-06}};

}  // namespace sluice
