// Mistral and Ministral: as Llama, without biases; some releases with a sliding window. Mistral
// Small 3.1 and Ministral 3 are models of text and images whose text part is one of these.
#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace {

// Source: transformers' MistralConfig and MinistralConfig. A window that is null is none; one that
// is absent is the library's default.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  constexpr int64_t kDefaultWindow = 4096;
  if (!window && !fields.Has("sliding_window")) window = kDefaultWindow;
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

// Ministral 3: q grows with the position beyond those of the training. Source: transformers'
// Ministral3Config and get_llama_4_attn_scale.
Status ReadMinistral3(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadWindow(fields, config));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qkv_bias = layer.attention.output_bias = false;
    layer.mlp.has_bias = false;
  }
  ASSIGN_OR_RETURN(const json::Value* block, fields.Object("rope_parameters"));
  if (block == nullptr) return {};
  const JsonFields rope(*block, "rope_parameters.");
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

// The text part says which of them it is.
Status ReadNested(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto type, fields.String("model_type"));
  if (type.value_or("mistral") == "mistral") return Read(fields, config);
  if (*type == "ministral3") return ReadMinistral3(fields, config);
  return Fail(ErrorCode::kUnsupported,
              fmt::format("text_config.model_type '{}' is not supported; supported are mistral and "
                          "ministral3",
                          ShortName(*type)),
              "text_config.model_type");
}

}  // namespace

const ModelFamily kMinistral = {"MinistralForCausalLM",
                                "ministral",
                                {.kv_heads = 8},
                                Read,
                                {.models = "Ministral 8B", .operators = "windows in some layers"}};
const ModelFamily kMinistral3 = {"Ministral3ForCausalLM",
                                 "ministral3",
                                 {.kv_heads = 8},
                                 ReadMinistral3,
                                 {.models = "Ministral 3, text alone",
                                  .operators = "YaRN; a temperature that grows with the position"}};
const ModelFamily kMistral = {"MistralForCausalLM",
                              "mistral",
                              {.kv_heads = 8},
                              Read,
                              {.models = "Mistral 7B to Large, Nemo, Small 3",
                               .operators = "a window, in some releases",
                               .golden = "tiny-mistral-window",
                               .error = 8.6e-07}};
const ModelFamily kMistral3 = {"Mistral3ForConditionalGeneration",
                               "mistral3",
                               {.kv_heads = 8, .is_nested = true},
                               ReadNested,
                               {.models = "Mistral Small 3.1 and 3.2, Ministral 3 3B, 8B, 14B",
                                .operators = "the text part: as Mistral or Ministral 3",
                                .golden = "tiny-ministral3",
                                .error = 1.4e-06}};

}  // namespace sluice
