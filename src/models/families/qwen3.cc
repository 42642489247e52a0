// Qwen3 dense: as Llama, with an RMS norm of each head of q and k before rope, and a sliding window
// where config.json asks for one. Its bias is on the attention alone.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace {

Status Read(const JsonFields& fields, ModelConfig& config) {
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.mlp.has_bias = false;
  }
  return ReadSlidingAttention(fields, config);
}

}  // namespace

const ModelFamily kQwen3 = {"Qwen3ForCausalLM",
                            "qwen3",
                            {.head_dim = 128},
                            Read,
                            {.models = "Qwen3 0.6B to 32B",
                             .operators = "norms of heads; a window, where asked for",
                             .golden = "qwen3-bf16, tiny-qwen3-bias and eight quantized ones",
                             .error = 5e-06}};

}  // namespace sluice
