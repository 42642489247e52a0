// Qwen 2 and 2.5: as Llama, with biases on q, k and v, and a sliding window where config.json asks
// for one.
#include "models/registry.h"

namespace sluice {
namespace {

Result<DecoderSpec> Describe(const ModelConfig& config) {
  DecoderSpec spec = DescribePlainDecoder(config);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = true;
    layer.attention.output_bias = false;
    layer.mlp.has_bias = false;
  }
  return spec;
}

}  // namespace

const ModelFamily kQwen2 = {"Qwen2ForCausalLM", Describe};

}  // namespace sluice
