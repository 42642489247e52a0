// Qwen3-MoE: the attention of Qwen3; in most layers experts in place of the MLP, chosen by a
// softmax over all of them, whose weights scale the experts' outputs.
#include "models/registry.h"

namespace sluice {
namespace {

Result<DecoderSpec> Describe(const ModelConfig& config) {
  DecoderSpec spec = DescribePlainDecoder(config);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.mlp.has_bias = false;
    if (!config.experts->layers[i]) continue;
    layer.mlp.intermediate_size = 0;
    layer.moe = MoeSpec{.router_module = "mlp.gate",
                        .experts_module = "mlp.experts",
                        .num_experts = config.experts->num_experts,
                        .top_k = config.experts->experts_per_token,
                        .intermediate_size = config.experts->intermediate_size,
                        .score = kernels::RouterScore::kSoftmax,
                        .normalize = config.experts->normalize};
  }
  return spec;
}

}  // namespace

const ModelFamily kQwen3Moe = {"Qwen3MoeForCausalLM", Describe};

}  // namespace sluice
