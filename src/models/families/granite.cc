// Granite 3 and 4, dense: as Llama, with factors on the embedding, on what each sub-layer adds to
// the residual, on q . k and on the logits. Granite 4 names its MLP otherwise, and may have layers
// without rope.
#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace {

Status ReadMultipliers(const JsonFields& fields, ModelConfig& config) {
  const auto read = [&](const char* name) -> Result<float> {
    ASSIGN_OR_RETURN(const auto given, fields.Number(name, 1e-6, 1e6));
    return static_cast<float>(given.value_or(1));
  };
  ASSIGN_OR_RETURN(config.spec.embedding_scale, read("embedding_multiplier"));
  ASSIGN_OR_RETURN(config.spec.residual_scale, read("residual_multiplier"));
  ASSIGN_OR_RETURN(const float logits, read("logits_scaling"));
  config.spec.logit_scale = 1 / logits;
  ASSIGN_OR_RETURN(const float attention, read("attention_multiplier"));
  for (LayerSpec& layer : config.spec.layers) layer.attention.scale = attention;
  return {};
}

// Source: transformers' GraniteConfig and GraniteModel.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  return ReadMultipliers(fields, config);
}

// The dense models of Granite 4. Source: transformers' GraniteMoeHybridConfig.
Status ReadHybrid(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto experts, fields.Integer("num_local_experts", 0, 4096));
  if (experts.value_or(0) != 0) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("num_local_experts {} is not supported by {}: only its dense models "
                            "are, with 0",
                            *experts, config.architecture),
                "num_local_experts");
  }
  ASSIGN_OR_RETURN(const auto types, ReadLayerTypes(fields, config, {"attention", kFullAttention}));
  // Without them every layer is one of another kind.
  if (!types) return fields.Missing("layer_types");
  ASSIGN_OR_RETURN(const auto positions, fields.String("position_embedding_type"));
  if (positions && *positions != "rope" && *positions != "nope") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("position_embedding_type '{}' is not supported; supported are rope and "
                            "nope",
                            ShortName(*positions)),
                "position_embedding_type");
  }
  ASSIGN_OR_RETURN(const auto width,
                   fields.Integer("shared_intermediate_size", 1, kMaxConfigWidth));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.rope = positions == "rope";
    layer.mlp.module = "shared_mlp";
    layer.mlp.gate_up_projection = "input_linear";
    layer.mlp.down_projection = "output_linear";
    layer.mlp.intermediate_size = width.value_or(1024);
    layer.mlp.has_bias = false;
  }
  config.intermediate_size = config.spec.layers.front().mlp.intermediate_size;
  return ReadMultipliers(fields, config);
}

constexpr ConfigDefaults kDefaults = {.rope_theta = 10000};

}  // namespace

const ModelFamily kGranite = {"GraniteForCausalLM",
                              "granite",
                              kDefaults,
                              Read,
                              {.models = "Granite 3.0 to 3.3, 2B and 8B",
                               .operators = "factors on embeddings, residual, scores and logits",
                               .golden = "tiny-granite",
                               .error = 2.7e-06}};
const ModelFamily kGraniteHybrid = {"GraniteMoeHybridForCausalLM",
                                    "granitemoehybrid",
                                    kDefaults,
                                    ReadHybrid,
                                    {.models = "Granite 4.0 Micro, 1B, 350M: the dense ones",
                                     .operators = "as Granite 3; with and without rope",
                                     .golden = "tiny-granite4",
                                     .error = 2.8e-06}};

}  // namespace sluice
