// Llama 3.x: grouped-query attention, half-rotation rope with or without the llama3 scaling,
// SwiGLU.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace {

Status Read(const JsonFields& fields, ModelConfig& config) {
  return ReadFullAttention(fields, config);
}

}  // namespace

const ModelFamily kLlama = {
    "LlamaForCausalLM",
    "llama",
    {},
    Read,
    {.models = "Llama 3 to 3.3, 1B to 405B, and others of their shape",
     .operators = "scaled rope; biases of attention and MLP",
     .golden = "llama-bf16, llama-tied-bf16-sharded, tiny-llama-bias, tiny-llama-wide",
     .error = 4.8e-06}};

}  // namespace sluice
