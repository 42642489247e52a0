// Gemma 4, the text models: GELU, scaled embeddings, RMS norms before and behind every sub-layer
// and of each head of q, k and v; most layers see a window, the others have wider heads, of which
// rope rotates a part, and in some models values that are their keys. Small models have embeddings
// of their own in every layer, and upper layers that attend to the keys and values of lower ones;
// another one has experts beside the MLP, each with norms of their own.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"
#include "models/rope_frequencies.h"

namespace sluice {
namespace {

constexpr double kDefaultLocalTheta = 10000, kDefaultTheta = 1e6, kDefaultRotated = 0.25;

// The heads of layers that see everything.
struct GlobalHeads {
  int64_t head_dim = 0;
  int64_t num_kv_heads = 0;
  bool values_are_keys = false;

  friend bool operator==(const GlobalHeads&, const GlobalHeads&) = default;
};

// Frequencies of a part of a head; the others are 0: what is not rotated.
// Source: transformers modeling_rope_utils.py (_compute_proportional_rope_parameters).
std::vector<float> ProportionalRope(int64_t head_dim, double theta, double part, double factor) {
  const RopeConfig rope{.theta = theta};
  std::vector<float> table = RopeTableOf(rope, head_dim);
  const auto rotated = static_cast<size_t>(part * static_cast<double>(head_dim) / 2);
  for (size_t i = 0; i < table.size(); ++i)
    table[i] = i < rotated ? static_cast<float>(table[i] / factor) : 0.0f;
  return table;
}

// Of one kind of layers.
Result<std::vector<float>> ReadRope(const JsonFields& fields, const char* kind, int64_t head_dim,
                                    double default_theta, double default_part) {
  ASSIGN_OR_RETURN(const json::Value* ropes, fields.Object("rope_parameters"));
  double theta = default_theta, part = default_part, factor = 1;
  if (ropes != nullptr) {
    ASSIGN_OR_RETURN(const json::Value* block, JsonFields(*ropes, "rope_parameters.").Object(kind));
    if (block == nullptr) return JsonFields(*ropes, "rope_parameters.").Missing(kind);
    const std::string name = fmt::format("rope_parameters.{}.", kind);
    const JsonFields rope(*block, name);
    ASSIGN_OR_RETURN(const auto type, rope.String("rope_type"));
    const bool is_proportional = type == "proportional";
    if (!is_proportional && type.value_or("default") != "default") {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}rope_type '{}' is not supported by this architecture; supported "
                              "are default and proportional",
                              name, *type),
                  name + "rope_type");
    }
    ASSIGN_OR_RETURN(const auto given_theta, rope.Number("rope_theta", 1, 1e12));
    ASSIGN_OR_RETURN(const auto given_part, rope.Number("partial_rotary_factor", 0, 1));
    ASSIGN_OR_RETURN(const auto given_factor, rope.Number("factor", 1e-3, 1e6));
    theta = given_theta.value_or(theta);
    part = is_proportional ? given_part.value_or(1) : 1;
    factor = is_proportional ? given_factor.value_or(1) : 1;
    if (!is_proportional && given_part.value_or(1) != 1) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}partial_rotary_factor {} is only supported with rope_type "
                              "proportional",
                              name, *given_part),
                  name + "partial_rotary_factor");
    }
  }
  return ProportionalRope(head_dim, theta, part, factor);
}

// As transformers writes it since 5.20: what differs in each layer by its number.
Status ReadLayerConfigs(const JsonFields& fields, const std::vector<bool>& slides,
                        const ModelConfig& config, GlobalHeads& heads) {
  ASSIGN_OR_RETURN(const json::Value* layers, fields.Object("per_layer_config"));
  if (layers == nullptr) return {};
  const JsonFields by_number(*layers, "per_layer_config.");
  std::optional<GlobalHeads> all;
  for (size_t i = 0; i < slides.size(); ++i) {
    ASSIGN_OR_RETURN(const json::Value* layer, by_number.Object(std::to_string(i)));
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
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("per_layer_config.{} is not supported: layers that see everything "
                              "may differ from the others in head_dim and num_key_value_heads, and "
                              "are alike",
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

// Whether each layer sees a window. The last one never does.
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

// The last `num_kv_shared_layers` layers use what the last of their kind before them has.
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
  ASSIGN_OR_RETURN(const auto top_k, fields.Integer("top_k_experts", 1, kMaxConfigWidth));
  RETURN_IF_ERROR(ReadExpertCounts(fields, top_k, moe));
  if (moe.top_k > moe.num_experts) {
    return fields.Bad("top_k_experts", fmt::format("at most num_experts {}", moe.num_experts),
                      json::Value(moe.top_k));
  }
  ASSIGN_OR_RETURN(moe.intermediate_size,
                   fields.RequiredInteger("moe_intermediate_size", 1, kMaxConfigWidth));
  for (LayerSpec& layer : config.spec.layers) layer.moe = moe;
  return {};
}

Status RefuseBothWays(const JsonFields& fields) {
  // "vision": of tokens of images.
  ASSIGN_OR_RETURN(const auto both_ways, fields.String("use_bidirectional_attention"));
  if (!both_ways || *both_ways == "vision") return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("use_bidirectional_attention '{}' is not supported: tokens of text see "
                          "earlier ones only",
                          *both_ways),
              "use_bidirectional_attention");
}

// Source: transformers' Gemma4TextConfig, Gemma4TextAttention, Gemma4TextDecoderLayer.
Status ReadText(const JsonFields& fields, ModelConfig& config, int64_t default_embeddings) {
  constexpr int64_t kDefaultWindow = 512;
  RETURN_IF_ERROR(RefuseBothWays(fields));
  ASSIGN_OR_RETURN(const std::vector<bool> slides, ReadWindows(fields, config));
  ASSIGN_OR_RETURN(const GlobalHeads global, ReadGlobalHeads(fields, slides, config));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  ASSIGN_OR_RETURN(const auto soft_cap, fields.Number("final_logit_softcapping", 1e-3, 1e6));
  DecoderSpec& spec = config.spec;
  ASSIGN_OR_RETURN(std::vector<float> full_rope, ReadRope(fields, kFullAttention, global.head_dim,
                                                          kDefaultTheta, kDefaultRotated));
  ASSIGN_OR_RETURN(std::vector<float> window_rope,
                   ReadRope(fields, kSlidingAttention, config.head_dim, kDefaultLocalTheta, 1));
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
      attention.span.window = static_cast<int32_t>(window.value_or(kDefaultWindow));
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
  constexpr int64_t kDefaultEmbeddings = 256;
  return ReadText(fields, config, kDefaultEmbeddings);
}

// Without embeddings in layers, and without experts.
Status ReadUnified(const JsonFields& fields, ModelConfig& config) {
  return ReadText(fields, config, /*default_embeddings=*/0);
}

constexpr ConfigDefaults DefaultsOf(bool is_nested) {
  return {.vocab_size = 262144,
          .num_attention_heads = 8,
          .max_position_embeddings = 131072,
          .head_dim = 256,
          .kv_heads = 4,
          .rope_theta = kDefaultTheta,
          .tie_word_embeddings = true,
          .activation = Activation::kGeluTanh,
          .is_nested = is_nested,
          .positions_are_scaled = true};
}

}  // namespace

const ModelFamily kGemma4 = {
    "Gemma4ForCausalLM",
    "gemma4_text",
    DefaultsOf(false),
    Read,
    {.models = "the text models",
     .operators = "GELU; norms before and behind sub-layers, and of heads of q, k and v; scaled "
                  "embeddings; windows with a rope of their own; wider heads in the other layers; "
                  "embeddings in layers; keys and values shared by layers; values that are keys; "
                  "experts beside the MLP",
     .golden = "tiny-gemma4-shared, tiny-gemma4-experts",
     .error = 6.8e-06}};
// The text parts.
const ModelFamily kGemma4Nested = {"Gemma4ForConditionalGeneration",
                                   "gemma4",
                                   DefaultsOf(true),
                                   Read,
                                   {.models = "Gemma 4 E2B, E4B, 26B-A4B, 31B",
                                    .operators = "the text part: as Gemma4ForCausalLM"}};
const ModelFamily kGemma4Unified = {
    "Gemma4UnifiedForConditionalGeneration",
    "gemma4_unified",
    DefaultsOf(true),
    ReadUnified,
    {.models = "Gemma 4 12B", .operators = "the text part: as Gemma4ForCausalLM"}};

}  // namespace sluice
