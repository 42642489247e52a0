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

const ModelFamily kLlama = {"LlamaForCausalLM", "llama", {}, Read};

}  // namespace sluice
