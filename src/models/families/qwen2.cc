// Qwen 2 and 2.5: as Llama, with biases on q, k and v, and a sliding window where config.json asks
// for one.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace {

Status Read(const JsonFields& fields, ModelConfig& config) {
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qkv_bias = true;
    layer.attention.output_bias = false;
    layer.mlp.has_bias = false;
  }
  return ReadSlidingAttention(fields, config);
}

}  // namespace

const ModelFamily kQwen2 = {"Qwen2ForCausalLM",
                            "qwen2",
                            {.kv_heads = 32},
                            Read,
                            {.models = "Qwen2, Qwen2.5 0.5B to 72B, QwQ",
                             .operators = "biases of q, k and v; a window, where asked for",
                             .golden = "tiny-qwen2-window",
                             .error = 9.2e-07}};

}  // namespace sluice
