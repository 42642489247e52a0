// Llama 3.x: grouped-query attention, half-rotation rope with or without the llama3 scaling,
// SwiGLU.
#include "models/registry.h"

namespace sluice {
namespace {

Result<DecoderSpec> Describe(const ModelConfig& config) {
  return DescribePlainDecoder(config);
}

}  // namespace

const ModelFamily kLlama = {"LlamaForCausalLM", Describe};

}  // namespace sluice
