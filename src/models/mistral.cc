// Mistral: as Llama, without biases; some releases with a sliding window.
#include "models/registry.h"

namespace sluice {
namespace {

Result<DecoderSpec> Describe(const ModelConfig& config) {
  DecoderSpec spec = DescribePlainDecoder(config);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = layer.attention.output_bias = false;
    layer.mlp.has_bias = false;
  }
  return spec;
}

}  // namespace

const ModelFamily kMistral = {"MistralForCausalLM", Describe};

}  // namespace sluice
