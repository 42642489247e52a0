// Qwen3 dense: as Llama, with an RMS norm of each head of q and k before rope. Its bias is on the
// attention alone.
#include "models/registry.h"

namespace sluice {
namespace {

Result<DecoderSpec> Describe(const ModelConfig& config) {
  DecoderSpec spec = DescribePlainDecoder(config);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.mlp.has_bias = false;
  }
  return spec;
}

}  // namespace

const ModelFamily kQwen3 = {"Qwen3ForCausalLM", Describe};

}  // namespace sluice
