// SmolLM3: as Llama, without rope in every fourth layer.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace {

// Source: transformers' SmolLM3Config and SmolLM3Attention.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  ASSIGN_OR_RETURN(const std::vector<bool> rope, ReadRopeLayers(fields, config));
  for (size_t i = 0; i < rope.size(); ++i) config.spec.layers[i].attention.rope = rope[i];
  return {};
}

constexpr ConfigDefaults kDefaults = {
    .kv_heads = 4, .rope_theta = 2e6, .tie_word_embeddings = true};

}  // namespace

const ModelFamily kSmolLm3 = {"SmolLM3ForCausalLM",
                              "smollm3",
                              kDefaults,
                              Read,
                              {.models = "SmolLM3 3B",
                               .operators = "layers without rope",
                               .golden = "tiny-smollm3",
                               .error = 1.1e-06}};

}  // namespace sluice
