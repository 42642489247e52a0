// Qwen 2 and 2.5, Qwen2-VL and Qwen2.5-VL (whose RoPE uses rows and columns of images): like Llama,
// with biases on q, k and v, and a sliding window if config.json enables it.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace qwen2 {
namespace {

Status Read(const JsonFields& fields, ModelConfig& config) {
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qkv_bias = true;
    layer.attention.output_bias = false;
    layer.mlp.has_bias = false;
  }
  return ReadSlidingAttention(fields, config);
}

// Source: configuration_mimo.py and modeling_mimo.py, which are published with MiMo 7B.
Status ReadMimo(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto draft,
                   fields.Integer("num_nextn_predict_layers", 0, kMaxConfigLayers));
  config.spec.num_draft_layers = draft.value_or(0);
  return Read(fields, config);
}

// Source: transformers' Qwen2Config.
constexpr ConfigDefaults kDefaults = {.vocab_size = 151936,
                                      .hidden_size = 4096,
                                      .intermediate_size = 22016,
                                      .num_hidden_layers = 32,
                                      .num_attention_heads = 32,
                                      .kv_heads = 32,
                                      .max_position_embeddings = 32768};

Status ReadVl(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(Read(fields, config));
  return ReadRopeAxes(fields, {16, 24, 24}, /*interleaves=*/false, config);
}

// Source: transformers' Qwen2VLTextConfig and Qwen2_5_VLTextConfig.
constexpr ConfigDefaults kVlDefaults = {.vocab_size = 152064,
                                        .hidden_size = 8192,
                                        .intermediate_size = 29568,
                                        .num_hidden_layers = 80,
                                        .num_attention_heads = 64,
                                        .kv_heads = 8,
                                        .max_position_embeddings = 32768,
                                        .rms_norm_eps = 1e-5,
                                        .rope_theta = 1e6,
                                        .bos_token_id = 151643,
                                        .eos_token_id = 151645,
                                        .is_nested = true,
                                        .may_be_flat = true};

}  // namespace
}  // namespace qwen2

const ModelFamily kQwen2Vl = {
    "Qwen2VLForConditionalGeneration",
    "qwen2_vl",
    qwen2::kVlDefaults,
    qwen2::ReadVl,
    {.models = "Qwen2-VL 2B to 72B",
     .operators = "like Qwen2; M-RoPE (time, row, column); images: layer norms, 2-D rope",
     .golden = "tiny-qwen2-vl",
     .error = 8.9e-07}};
const ModelFamily kQwen25Vl = {
    "Qwen2_5_VLForConditionalGeneration",
    "qwen2_5_vl",
    qwen2::kVlDefaults,
    qwen2::ReadVl,
    {.models = "Qwen2.5-VL 3B to 72B",
     .operators = "like Qwen2; M-RoPE (time, row, column); images: RMS norms, 2-D rope, windows",
     .golden = "tiny-qwen2.5-vl",
     .error = 9.2e-07}};
const ModelFamily kQwen2 = {"Qwen2ForCausalLM",
                            "qwen2",
                            qwen2::kDefaults,
                            qwen2::Read,
                            {.models = "Qwen2, Qwen2.5 0.5B to 72B, QwQ",
                             .operators = "biases of q, k and v; a window, if configured",
                             .golden = "tiny-qwen2-window",
                             .error = 9.2e-07}};

const ModelFamily kMimo = {"MiMoForCausalLM",
                           "mimo",
                           qwen2::kDefaults,
                           qwen2::ReadMimo,
                           {.models = "MiMo 7B",
                            .operators = "like Qwen2; a layer that proposes draft tokens",
                            .golden = "tiny-mtp-mimo",
                            .error = 1e-06}};

}  // namespace sluice
