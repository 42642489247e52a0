// Llama 4, the text model: interleaved rope and an unweighted norm of q and k behind it in layers
// that see chunks of positions, neither but a temperature in those that see all; experts chosen by
// the largest logit, whose sigmoid scales their inputs, beside a shared one.
#include "models/registry.h"

namespace sluice {
namespace {

void DescribeAttention(const ModelConfig& config, AttentionSpec& attention) {
  attention.rope_style = kernels::RopeStyle::kInterleaved;
  if (attention.rope) {
    attention.qk_norm = config.use_qk_norm ? QkNorm::kAfterRopeUnweighted : QkNorm::kNone;
  } else {
    attention.temperature_tuning = config.temperature_tuning;
  }
}

Result<DecoderSpec> Describe(const ModelConfig& config) {
  DecoderSpec spec = DescribePlainDecoder(config);
  const ExpertsConfig& experts = *config.experts;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    DescribeAttention(config, layer.attention);
    layer.mlp.has_bias = false;
    layer.mlp.module = "feed_forward";
    if (!experts.layers[i]) continue;
    layer.mlp.module = "feed_forward.shared_expert";
    layer.mlp.intermediate_size = experts.has_shared ? experts.intermediate_size : 0;
    layer.moe = MoeSpec{.router_module = "feed_forward.router",
                        .experts_module = "feed_forward.experts",
                        .fused_transposed = true,
                        .num_experts = experts.num_experts,
                        .top_k = experts.experts_per_token,
                        .intermediate_size = experts.intermediate_size,
                        .score = kernels::RouterScore::kSigmoid,
                        .scale_inputs = true};
  }
  return spec;
}

}  // namespace

const ModelFamily kLlama4 = {"Llama4ForConditionalGeneration", Describe};
const ModelFamily kLlama4Text = {"Llama4ForCausalLM", Describe};

}  // namespace sluice
