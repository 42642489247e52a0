// Mistral and Ministral: like Llama, but without biases; some releases have a sliding window.
// Mistral Small 3.1 and Ministral 3 are models for text and images; their text part is one of these
// models.
#include <fmt/format.h>

#include "models/families/mistral4.h"
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace mistral {
namespace {

// Source: transformers' MistralConfig and MinistralConfig. A null window means no window; an absent
// field means the library's default.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  constexpr int64_t kDefaultWindow = 4096;
  if (!window && !fields.Has("sliding_window")) window = kDefaultWindow;
  RETURN_IF_ERROR(ReadRopeStyle(fields, config));
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.qkv_bias = layer.attention.output_bias = false;
    layer.mlp.has_bias = false;
    const bool slides = types ? (*types)[i] == kSlidingAttention : window.has_value();
    if (!slides) continue;
    if (!window) return fields.Missing("sliding_window");
    layer.attention.span.window = static_cast<int32_t>(*window);
  }
  return {};
}

// Ministral 3: at positions beyond original_max_position_embeddings, q is scaled up with its
// position (TemperatureTuning). Source: transformers' Ministral3Config.
Status ReadMinistral3(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadWindow(fields, config));
  RETURN_IF_ERROR(ReadRopeStyle(fields, config));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qkv_bias = layer.attention.output_bias = false;
    layer.mlp.has_bias = false;
  }
  return ReadTemperature(fields, config);
}

// The text part's model_type selects the model.
Status ReadNested(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto type, fields.String("model_type"));
  if (type.value_or("mistral") == "mistral") return Read(fields, config);
  if (*type == "ministral3") return ReadMinistral3(fields, config);
  if (*type == "mistral4") return ReadMistral4(fields, config);
  return Fail(ErrorCode::kUnsupported,
              fmt::format("text_config.model_type '{}' is not supported; supported are mistral, "
                          "ministral3 and mistral4",
                          ShortName(*type)),
              "text_config.model_type");
}

// Source: transformers' MistralConfig, MinistralConfig and Ministral3Config.
constexpr ConfigDefaults kMistralDefaults = {.vocab_size = 32000,
                                             .hidden_size = 4096,
                                             .intermediate_size = 14336,
                                             .num_hidden_layers = 32,
                                             .num_attention_heads = 32,
                                             .kv_heads = 8,
                                             .max_position_embeddings = 131072,
                                             .bos_token_id = 1,
                                             .eos_token_id = 2};
constexpr ConfigDefaults kMinistral3Defaults = {
    .vocab_size = 131072,
    .hidden_size = 4096,
    .intermediate_size = 14336,
    .num_hidden_layers = 34,
    .num_attention_heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .max_position_embeddings = 262144,
    .rms_norm_eps = 1e-5,
    .rope_parameters =
        R"({"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1})",
    .bos_token_id = 1,
    .eos_token_id = 2};

constexpr ConfigDefaults Nested(ConfigDefaults defaults) {
  defaults.is_nested = true;
  return defaults;
}

const ConfigDefaults& TextDefaults(std::string_view text_type) {
  static constexpr ConfigDefaults kOlder = Nested(kMistralDefaults);
  static constexpr ConfigDefaults kNewer = Nested(kMinistral3Defaults);
  static constexpr ConfigDefaults kNewest = Nested(kMistral4Defaults);
  return text_type == "mistral4" ? kNewest : text_type == "ministral3" ? kNewer : kOlder;
}

}  // namespace
}  // namespace mistral

Status ReadTemperature(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const json::Value* older, fields.Object("rope_scaling"));
  ASSIGN_OR_RETURN(const json::Value* block, fields.Object("rope_parameters"));
  const bool is_older = older != nullptr && !older->as_object().empty();
  if (is_older) block = older;
  if (block == nullptr) return {};
  const JsonFields rope(*block, is_older ? "rope_scaling." : "rope_parameters.");
  ASSIGN_OR_RETURN(const auto beta, rope.Number("llama_4_scaling_beta", 0, 1e3));
  if (beta.value_or(0) == 0) return {};
  ASSIGN_OR_RETURN(const int64_t original, rope.RequiredInteger("original_max_position_embeddings",
                                                                1, kMaxConfigPositions));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.temperature_tuning = TemperatureTuning{
        .floor_scale = static_cast<double>(original), .attn_scale = *beta, .first = 0};
  }
  return {};
}

const ModelFamily kMinistral = {"MinistralForCausalLM",
                                "ministral",
                                mistral::kMistralDefaults,
                                mistral::Read,
                                {.models = "Ministral 8B", .operators = "windows in some layers"}};
const ModelFamily kMinistral3 = {"Ministral3ForCausalLM",
                                 "ministral3",
                                 mistral::kMinistral3Defaults,
                                 mistral::ReadMinistral3,
                                 {.models = "Ministral 3, text only",
                                  .operators = "YaRN; a temperature that grows with the position",
                                  .golden = "tiny-mistral-own",
                                  .error = 8.6e-07}};
const ModelFamily kMistral = {"MistralForCausalLM",
                              "mistral",
                              mistral::kMistralDefaults,
                              mistral::Read,
                              {.models = "Mistral 7B to Large, Nemo, Small 3",
                               .operators = "a window, in some releases",
                               .golden = "tiny-mistral-window",
                               .error = 8.6e-07}};
const ModelFamily kMistral3 = {
    "Mistral3ForConditionalGeneration",
    "mistral3",
    mistral::Nested(mistral::kMistralDefaults),
    mistral::ReadNested,
    {.models = "Mistral Small 3.1, 3.2 and 4, Ministral 3 3B, 8B, 14B",
     .operators = "like Mistral, Ministral 3 or Mistral 4; images: Pixtral's "
                  "tower with 2-D rope",
     .golden = "tiny-ministral3, tiny-mistral4, tiny-mistral3-vision",
     .error = 1.4e-06},
    mistral::TextDefaults};

}  // namespace sluice
