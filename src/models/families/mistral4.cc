// Mistral Small 4: latent attention, a shared expert, and experts chosen by softmax scores. At
// positions beyond original_max_position_embeddings, q is scaled up with its position.
#include "models/families/mistral4.h"

#include "models/family_fields.h"
#include "models/latent_fields.h"

namespace sluice {

// Source: transformers' Mistral4Config and modeling_mistral4.py.
Status ReadMistral4(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadLatentAttention(
      fields, {.q_rank = 1024, .kv_rank = 256, .nope_dim = 64, .value_dim = 128}, config));
  config.head_dim = config.spec.layers.front().attention.latent->qk_dim();
  RETURN_IF_ERROR(ReadTemperature(fields, config));
  return ReadDeepseekExperts(fields, {.num_experts = 128, .top_k = 4, .intermediate_size = 2048},
                             {}, config);
}

const ModelFamily kMistral4 = {
    "Mistral4ForCausalLM",
    "mistral4",
    kMistral4Defaults,
    ReadMistral4,
    {.models = "Mistral Large 3 and Small 4, text only",
     .operators = "latent attention; YaRN; a temperature that grows with the position; experts "
                  "with a softmax router; a shared expert",
     .golden = "tiny-mistral-large3",
     .error = 2.8e-06}};

}  // namespace sluice
