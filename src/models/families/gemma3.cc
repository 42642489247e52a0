// Gemma 3, the text model: GELU; scaled embeddings; RMS norms before and after every sublayer,
// whose stored weights w stand for 1 + w; per-head norms of q and k before RoPE. Most layers have a
// window and separate RoPE frequencies.
#include <cmath>

#include "models/family_fields.h"
#include "models/registry.h"
#include "models/rope_frequencies.h"

namespace sluice {
namespace gemma3 {
namespace {

constexpr double kDefaultLocalTheta = 10000;

// transformers 5 has a block of settings for each kind of layer. transformers 4 has one field for
// the base of layers with a window, in addition to the fields for the other layers.
Status ReadRopes(const JsonFields& fields, ModelConfig& config) {
  RopeConfig local;
  ASSIGN_OR_RETURN(const bool has_blocks,
                   ReadRopeBlocks(fields, kDefaultLocalTheta, config, local));
  if (!has_blocks) {
    ASSIGN_OR_RETURN(const auto theta, ReadNumberOrText(fields, "rope_local_base_freq", 1, 1e12));
    local.theta = theta.value_or(kDefaultLocalTheta);
  }
  DescribeRope(config.rope, config.head_dim, config.spec, {RopeTableOf(local, config.head_dim)});
  return {};
}

// Source: transformers' Gemma3TextConfig and Gemma3TextModel.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadRopes(fields, config));
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto pattern,
                   fields.Integer("sliding_window_pattern", 1, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  ASSIGN_OR_RETURN(const auto scalar, fields.Number("query_pre_attn_scalar", 1e-3, 1e6));
  ASSIGN_OR_RETURN(const auto soft_cap, fields.Number("final_logit_softcapping", 1e-3, 1e6));
  ASSIGN_OR_RETURN(const auto both_ways, fields.Bool("use_bidirectional_attention"));
  if (both_ways.value_or(false)) {
    return Fail(
        ErrorCode::kUnsupported,
        "use_bidirectional_attention true is not supported: tokens attend only to earlier ones",
        "use_bidirectional_attention");
  }
  constexpr int64_t kDefaultWindow = 4096, kDefaultPattern = 6;
  constexpr double kDefaultScalar = 256;
  DecoderSpec& spec = config.spec;
  spec.norm_weight_offset = 1;
  spec.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  spec.logit_soft_cap = static_cast<float>(soft_cap.value_or(0));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.attention_norms = {.before = "input_layernorm", .after = "post_attention_layernorm"};
    layer.mlp_norms = {.before = "pre_feedforward_layernorm",
                       .after = "post_feedforward_layernorm"};
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.attention.scale = static_cast<float>(1 / std::sqrt(scalar.value_or(kDefaultScalar)));
    layer.mlp.has_bias = false;
    const bool slides = types
                            ? (*types)[i] == kSlidingAttention
                            : static_cast<int64_t>(i + 1) % pattern.value_or(kDefaultPattern) != 0;
    if (!slides) continue;
    layer.attention.span.window = static_cast<int32_t>(window.value_or(kDefaultWindow));
    layer.attention.rope_table = 1;
  }
  return {};
}

// Tokens of an image attend to all tokens of that image.
Status ReadNested(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(Read(fields, config));
  for (LayerSpec& layer : config.spec.layers) layer.attention.sees_images = true;
  return {};
}

// Configurations of models for text and images omit fields whose value is the library's default.
constexpr ConfigDefaults DefaultsOf(bool is_nested) {
  return {.vocab_size = 262208,
          .hidden_size = 2304,
          .intermediate_size = 9216,
          .num_hidden_layers = 26,
          .num_attention_heads = 8,
          .kv_heads = 4,
          .head_dim = 256,
          .max_position_embeddings = 131072,
          .rope_theta = 1e6,
          .bos_token_id = 2,
          .eos_token_id = 1,
          .tie_word_embeddings = true,
          .activation = Activation::kGeluTanh,
          .is_nested = is_nested,
          .positions_are_scaled = true};
}

}  // namespace
}  // namespace gemma3

const ModelFamily kGemma3 = {
    "Gemma3ForCausalLM",
    "gemma3_text",
    gemma3::DefaultsOf(false),
    gemma3::Read,
    {.models = "Gemma 3 270M, 1B",
     .operators = "GELU; norms that scale by 1 + w before and after sublayers and per head; scaled "
                  "embeddings; windows in some layers, with their own rope",
     .golden = "tiny-gemma3, tiny-gemma3-cap",
     .error = 5.3e-06}};
const ModelFamily kGemma3Nested = {
    "Gemma3ForConditionalGeneration",
    "gemma3",
    gemma3::DefaultsOf(true),
    gemma3::ReadNested,
    {.models = "Gemma 3 4B, 12B, 27B",
     .operators = "like Gemma3ForCausalLM; images: SigLIP; tokens of an image attend to each other",
     .golden = "tiny-gemma3-vision",
     .error = 1.5e-06}};

}  // namespace sluice
