// Gemma 4, the text models: GELU; scaled embeddings; RMS norms before and after every sublayer, and
// of each head of q, k and v. Most layers have a window. The others have wider heads with RoPE on a
// part of each head; in some models, their values equal their keys. Small models have an embedding
// per layer, and their upper layers use the keys and values of lower layers. One model has experts
// in parallel with the MLP, with separate norms.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/proportional_rope.h"
#include "models/registry.h"

namespace sluice {
namespace gemma4 {
namespace {

constexpr double kDefaultLocalTheta = 10000, kDefaultTheta = 1e6, kDefaultRotated = 0.25;

// The heads of layers without a window.
struct GlobalHeads {
  int64_t head_dim = 0;
  int64_t num_kv_heads = 0;
  bool values_are_keys = false;

  friend bool operator==(const GlobalHeads&, const GlobalHeads&) = default;
};

// Returns the members of per_layer_config by layer number; null for absent ones. Its keys are layer
// numbers, possibly with leading zeros ("05").
Result<std::vector<const json::Value*>> ByNumber(const json::Value& layers, size_t num_layers) {
  std::vector<const json::Value*> by_number(num_layers);
  for (const auto& [key, layer] : layers.as_object()) {
    const std::string field = fmt::format("per_layer_config.{}", ShortName(key));
    size_t number = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
    if (error != std::errc() || end != key.data() + key.size() || number >= num_layers ||
        by_number[number] != nullptr) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{}: each key must be the number of a layer from 0 to {}, once",
                              field, num_layers - 1),
                  field);
    }
    if (layer.is_null()) continue;
    if (!layer.is_object()) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{} must be an object, found {}", field, ShortText(layer)), field);
    }
    by_number[number] = &layer;
  }
  return by_number;
}

// Reads per_layer_config of transformers 5.20 and later: for each layer number, the settings that
// differ.
Status ReadLayerConfigs(const JsonFields& fields, const std::vector<bool>& slides,
                        const ModelConfig& config, GlobalHeads& heads) {
  ASSIGN_OR_RETURN(const json::Value* layers, fields.Object("per_layer_config"));
  if (layers == nullptr) return {};
  ASSIGN_OR_RETURN(const auto by_number, ByNumber(*layers, slides.size()));
  std::optional<GlobalHeads> all;
  for (size_t i = 0; i < slides.size(); ++i) {
    const json::Value* layer = by_number[i];
    const json::Value none(json::Value::Object{});
    const JsonFields own(layer == nullptr ? none : *layer, fmt::format("per_layer_config.{}.", i));
    ASSIGN_OR_RETURN(const auto head_dim, own.Integer("head_dim", 1, kMaxConfigWidth));
    ASSIGN_OR_RETURN(const auto kv_heads,
                     own.Integer("num_key_value_heads", 1, config.num_attention_heads));
    const GlobalHeads found{.head_dim = head_dim.value_or(config.head_dim),
                            .num_kv_heads = kv_heads.value_or(config.num_key_value_heads),
                            .values_are_keys = heads.values_are_keys};
    const bool is_plain =
        found.head_dim == config.head_dim && found.num_kv_heads == config.num_key_value_heads;
    const bool fits = slides[i] ? is_plain : !all || *all == found;
    if (!fits || (layer != nullptr &&
                  layer->as_object().size() != static_cast<size_t>(head_dim.has_value()) +
                                                   static_cast<size_t>(kv_heads.has_value()))) {
      return Fail(
          ErrorCode::kUnsupported,
          fmt::format("per_layer_config.{} is not supported: layers without a window may differ "
                      "from the others only in head_dim and num_key_value_heads, and must be equal",
                      i),
          "per_layer_config");
    }
    if (!slides[i]) all = found;
  }
  heads = *all;
  return {};
}

Result<GlobalHeads> ReadGlobalHeads(const JsonFields& fields, const std::vector<bool>& slides,
                                    const ModelConfig& config) {
  constexpr int64_t kDefaultHeadDim = 512;
  GlobalHeads heads;
  ASSIGN_OR_RETURN(const auto head_dim, fields.Integer("global_head_dim", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(const auto kv_heads,
                   fields.Integer("num_global_key_value_heads", 1, config.num_attention_heads));
  ASSIGN_OR_RETURN(const auto values_are_keys, fields.Bool("attention_k_eq_v"));
  heads.head_dim = head_dim.value_or(kDefaultHeadDim);
  heads.values_are_keys = values_are_keys.value_or(false);
  heads.num_kv_heads = heads.values_are_keys ? kv_heads.value_or(config.num_key_value_heads)
                                             : config.num_key_value_heads;
  RETURN_IF_ERROR(ReadLayerConfigs(fields, slides, config, heads));
  RETURN_IF_ERROR(CheckHeadWidth(heads.head_dim, "global_head_dim"));
  if (config.num_attention_heads % heads.num_kv_heads != 0) {
    return fields.Bad(
        "num_global_key_value_heads",
        fmt::format("a divisor of num_attention_heads {}", config.num_attention_heads),
        json::Value(heads.num_kv_heads));
  }
  return heads;
}

// Returns whether each layer has a window. The last layer never has a window.
Result<std::vector<bool>> ReadWindows(const JsonFields& fields, const ModelConfig& config) {
  constexpr size_t kDefaultPattern = 6;
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  std::vector<bool> slides;
  for (size_t i = 0; i < config.spec.layers.size(); ++i)
    slides.push_back(types ? (*types)[i] == kSlidingAttention : (i + 1) % kDefaultPattern != 0);
  slides.back() = false;
  return slides;
}

// Makes the last `num_kv_shared_layers` layers reuse the keys and values of the last earlier layer
// with the same attention span.
Status ShareKeysAndValues(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto given,
                   fields.Integer("num_kv_shared_layers", 0, config.num_hidden_layers));
  ASSIGN_OR_RETURN(const auto is_wide, fields.Bool("use_double_wide_mlp"));
  std::vector<LayerSpec>& layers = config.spec.layers;
  const size_t first = layers.size() - static_cast<size_t>(given.value_or(0));
  for (size_t i = first; i < layers.size(); ++i) {
    const auto end = layers.rend();
    const auto found = std::find_if(
        end - static_cast<std::ptrdiff_t>(first), end,
        [&](const LayerSpec& layer) { return layer.attention.span == layers[i].attention.span; });
    if (found == end) {
      return fields.Bad("num_kv_shared_layers",
                        fmt::format("a number that leaves a layer of the kind of layer {}", i),
                        json::Value(*given));
    }
    layers[i].attention.kv_layer = static_cast<int>(end - found) - 1;
    if (is_wide.value_or(false)) layers[i].mlp.intermediate_size *= 2;
  }
  return {};
}

Status ReadLayerEmbeddings(const JsonFields& fields, ModelConfig& config, int64_t default_width) {
  constexpr int64_t kDefaultVocabulary = 262144;
  ASSIGN_OR_RETURN(const auto width,
                   fields.Integer("hidden_size_per_layer_input", 0, kMaxConfigWidth));
  ASSIGN_OR_RETURN(const auto vocab_size,
                   fields.Integer("vocab_size_per_layer_input", 1, kMaxConfigPositions));
  config.spec.layer_embeddings = {.width = width.value_or(default_width),
                                  .vocab_size = vocab_size.value_or(kDefaultVocabulary)};
  if (config.spec.layer_embeddings.width == 0 ||
      config.spec.layer_embeddings.vocab_size >= config.vocab_size)
    return {};
  return fields.Bad("vocab_size_per_layer_input",
                    fmt::format("at least vocab_size {}", config.vocab_size),
                    json::Value(config.spec.layer_embeddings.vocab_size));
}

Status ReadExperts(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto has_experts, fields.Bool("enable_moe_block"));
  if (!has_experts.value_or(false)) return {};
  MoeSpec moe = {.router_module = "router",
                 .experts_module = "experts",
                 .activation = config.activation,
                 .normalize = true,
                 .own_norms = MoeSpec::OwnNorms{.mlp_after = "post_feedforward_layernorm_1",
                                                .experts_before = "pre_feedforward_layernorm_2",
                                                .experts_after = "post_feedforward_layernorm_2"}};
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.top_k_field = "top_k_experts"}, moe));
  ASSIGN_OR_RETURN(moe.intermediate_size,
                   fields.RequiredInteger("moe_intermediate_size", 1, kMaxConfigWidth));
  for (LayerSpec& layer : config.spec.layers) layer.moe = moe;
  return {};
}

Status RefuseBothWays(const JsonFields& fields) {
  // For "vision": in layers with a window, tokens of an image attend to each other in both
  // directions.
  ASSIGN_OR_RETURN(const auto both_ways, fields.String("use_bidirectional_attention"));
  if (!both_ways || *both_ways == "vision") return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("use_bidirectional_attention '{}' is not supported: tokens of text "
                          "attend only to earlier ones",
                          *both_ways),
              "use_bidirectional_attention");
}

// Source: transformers' Gemma4TextConfig, Gemma4TextAttention, Gemma4TextDecoderLayer.
Status ReadText(const JsonFields& fields, ModelConfig& config, int64_t default_embeddings,
                int64_t default_window) {
  RETURN_IF_ERROR(RefuseBothWays(fields));
  ASSIGN_OR_RETURN(const std::vector<bool> slides, ReadWindows(fields, config));
  ASSIGN_OR_RETURN(const GlobalHeads global, ReadGlobalHeads(fields, slides, config));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  ASSIGN_OR_RETURN(const auto soft_cap, fields.Number("final_logit_softcapping", 1e-3, 1e6));
  DecoderSpec& spec = config.spec;
  ASSIGN_OR_RETURN(
      std::vector<float> full_rope,
      ReadRopeOfKind(fields, kFullAttention, global.head_dim, kDefaultTheta, kDefaultRotated));
  ASSIGN_OR_RETURN(
      std::vector<float> window_rope,
      ReadRopeOfKind(fields, kSlidingAttention, config.head_dim, kDefaultLocalTheta, 1));
  spec.rope_tables = {std::move(full_rope), std::move(window_rope)};
  spec.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  spec.logit_soft_cap = static_cast<float>(soft_cap.value_or(0));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.attention_norms = {.before = "input_layernorm", .after = "post_attention_layernorm"};
    layer.mlp_norms = {.before = "pre_feedforward_layernorm",
                       .after = "post_feedforward_layernorm"};
    layer.residual_factor = "layer_scalar";
    layer.mlp.has_bias = false;
    AttentionSpec& attention = layer.attention;
    attention.qk_norm = QkNorm::kBeforeRope;
    attention.norms_values = true;
    attention.scale = 1.0f;
    attention.rotary_dim = 0;
    if (slides[i]) {
      attention.span.window = static_cast<int32_t>(window.value_or(default_window));
      attention.rope_table = 1;
    } else {
      attention.head_dim = static_cast<int>(global.head_dim);
      attention.num_kv_heads = static_cast<int>(global.num_kv_heads);
      attention.values_are_keys = global.values_are_keys;
    }
  }
  RETURN_IF_ERROR(ShareKeysAndValues(fields, config));
  RETURN_IF_ERROR(ReadLayerEmbeddings(fields, config, default_embeddings));
  return ReadExperts(fields, config);
}

Status Read(const JsonFields& fields, ModelConfig& config) {
  return ReadText(fields, config, /*default_embeddings=*/256, /*default_window=*/512);
}

// Reads in which layers tokens of an image attend to each other, and the token id that stands for
// images. Source: transformers' Gemma4Model.
Status ReadImages(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto both_ways, fields.String("use_bidirectional_attention"));
  for (LayerSpec& layer : config.spec.layers)
    layer.attention.sees_images = both_ways == "vision" && layer.attention.span.window > 0;
  ASSIGN_OR_RETURN(const auto pad, fields.Integer("pad_token_id", 0, config.vocab_size - 1));
  config.spec.image_token = static_cast<int32_t>(pad.value_or(0));
  return {};
}

Status ReadNested(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(Read(fields, config));
  return ReadImages(fields, config);
}

// Reads Gemma 4 12B, which has no per-layer embeddings and no experts.
Status ReadUnified(const JsonFields& fields, ModelConfig& config) {
  return ReadText(fields, config, /*default_embeddings=*/0, /*default_window=*/1024);
}

constexpr ConfigDefaults DefaultsOf(bool is_nested, int64_t positions = 131072) {
  return {.vocab_size = 262144,
          .hidden_size = 2304,
          .intermediate_size = 9216,
          .num_hidden_layers = 30,
          .num_attention_heads = 8,
          .kv_heads = 4,
          .head_dim = 256,
          .max_position_embeddings = positions,
          .rope_theta = kDefaultTheta,
          .bos_token_id = 2,
          .eos_token_id = 1,
          .tie_word_embeddings = true,
          .activation = Activation::kGeluTanh,
          .is_nested = is_nested,
          .positions_are_scaled = true};
}

}  // namespace
}  // namespace gemma4

const ModelFamily kGemma4 = {
    "Gemma4ForCausalLM",
    "gemma4_text",
    gemma4::DefaultsOf(false),
    gemma4::Read,
    {.models = "the text models of Gemma 4",
     .operators = "GELU; norms before and after sublayers; per-head norms of q, k and v; scaled "
                  "embeddings; windows in some layers, with their own rope; wider heads in layers "
                  "without a window; per-layer embeddings; layers that share keys and values; "
                  "values equal to keys; experts in parallel with the MLP",
     .golden = "tiny-gemma4-shared, tiny-gemma4-experts",
     .error = 6.8e-06}};
// Models for text and images that contain a Gemma 4 text model.
const ModelFamily kGemma4Nested = {"Gemma4ForConditionalGeneration",
                                   "gemma4",
                                   gemma4::DefaultsOf(true),
                                   gemma4::ReadNested,
                                   {.models = "Gemma 4 E2B, E4B, 26B-A4B, 31B",
                                    .operators = "like Gemma4ForCausalLM; images: two tables of "
                                                 "positions, 2-D rope, average pooling of patches",
                                    .golden = "tiny-gemma4-vision, tiny-gemma4-e-vision",
                                    .error = 1.8e-06}};
const ModelFamily kGemma4Unified = {
    "Gemma4UnifiedForConditionalGeneration",
    "gemma4_unified",
    gemma4::DefaultsOf(true, 262144),
    gemma4::ReadUnified,
    {.models = "Gemma 4 12B", .operators = "the text part: like Gemma4ForCausalLM"}};

const ModelFamily kGemma4UnifiedText = {"Gemma4UnifiedForCausalLM",
                                        "gemma4_unified_text",
                                        gemma4::DefaultsOf(false, 262144),
                                        gemma4::ReadUnified,
                                        {.models = "the text model of Gemma 4 12B",
                                         .operators = "like Gemma4ForCausalLM",
                                         .golden = "tiny-gemma4-unified",
                                         .error = 7.5e-07}};

}  // namespace sluice
