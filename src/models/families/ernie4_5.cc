// ERNIE 4.5, and PaddleOCR-VL, which is based on it: like Llama, but with interleaved RoPE. Large
// models have experts, chosen by softmax scores plus a bias, and shared experts.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace ernie4_5 {
namespace {

// Source: transformers' Ernie4_5Config and Ernie4_5Attention.
Status ReadDense(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  ASSIGN_OR_RETURN(const auto bias, fields.Bool("use_bias"));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.rope_style = kernels::RopeStyle::kInterleaved;
    layer.attention.qkv_bias = layer.attention.output_bias = bias.value_or(false);
    layer.mlp.has_bias = bias.value_or(false);
  }
  return {};
}

// Returns whether each layer has experts. Source: transformers' Ernie4_5_MoeDecoderLayer.
Result<std::vector<bool>> ReadSparse(const JsonFields& fields, const ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto start, fields.Integer("moe_layer_start_index", 0, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const auto end, fields.Integer("moe_layer_end_index", -1, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const auto step, fields.Integer("moe_layer_interval", 1, kMaxConfigLayers));
  const int64_t last = end.value_or(-1) == -1 ? config.num_hidden_layers - 1 : *end;
  std::vector<bool> sparse;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    sparse.push_back((i + 1) % step.value_or(1) == 0 && i >= start.value_or(1) && i <= last);
  return sparse;
}

// Source: transformers' Ernie4_5_MoeConfig and Ernie4_5_MoeTopKRouter.
Status ReadMoe(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadDense(fields, config));
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation,
                 .choice_bias = "mlp.moe_statics.e_score_correction_bias",
                 .normalize = true};
  ASSIGN_OR_RETURN(const auto count, fields.Integer("moe_num_experts", 1, kMaxConfigExperts));
  RETURN_IF_ERROR(ReadExpertCounts(fields,
                                   {.num_experts = count.value_or(64),
                                    .top_k = 6,
                                    .top_k_field = "moe_k",
                                    .intermediate_size = 1536},
                                   moe));
  ASSIGN_OR_RETURN(const auto shared,
                   fields.Integer("moe_num_shared_experts", 0, kMaxConfigExperts));
  ASSIGN_OR_RETURN(const std::vector<bool> sparse, ReadSparse(fields, config));
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    if (!sparse[i]) continue;
    LayerSpec& layer = config.spec.layers[i];
    layer.mlp.module = "mlp.shared_experts";
    layer.mlp.intermediate_size = moe.intermediate_size * shared.value_or(2);
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 103424,
                                      .hidden_size = 1024,
                                      .intermediate_size = 3072,
                                      .num_hidden_layers = 18,
                                      .num_attention_heads = 16,
                                      .kv_heads = 2,
                                      .head_dim = 128,
                                      .max_position_embeddings = 131072,
                                      .rms_norm_eps = 1e-5,
                                      .rope_theta = 500000,
                                      .bos_token_id = 1,
                                      .eos_token_id = 2,
                                      .tie_word_embeddings = true};
constexpr ConfigDefaults kMoeDefaults = {.vocab_size = 103424,
                                         .hidden_size = 2560,
                                         .intermediate_size = 12288,
                                         .num_hidden_layers = 28,
                                         .num_attention_heads = 20,
                                         .kv_heads = 4,
                                         .max_position_embeddings = 131072,
                                         .rms_norm_eps = 1e-5,
                                         .rope_theta = 500000,
                                         .bos_token_id = 1,
                                         .eos_token_id = 2,
                                         .tie_word_embeddings = true};

// Like ERNIE, except for the RoPE style. Source: transformers' PaddleOCRTextModel.
Status ReadPaddle(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadDense(fields, config));
  for (LayerSpec& layer : config.spec.layers)
    layer.attention.rope_style = kernels::RopeStyle::kHalf;
  return ReadRopeAxes(fields, {16, 24, 24}, /*interleaves=*/false, config);
}

constexpr ConfigDefaults PaddleDefaults() {
  ConfigDefaults defaults = kDefaults;
  defaults.is_nested = defaults.may_be_flat = true;
  return defaults;
}

}  // namespace
}  // namespace ernie4_5

const ModelFamily kPaddleOcrVl = {
    "PaddleOCRVLForConditionalGeneration",
    "paddleocr_vl",
    ernie4_5::PaddleDefaults(),
    ernie4_5::ReadPaddle,
    {.models = "PaddleOCR-VL 0.9B",
     .operators = "like Llama; M-RoPE (time, row, column); images: SigLIP with interpolated "
                  "positions and 2-D rope",
     .golden = "tiny-paddleocr-vl",
     .error = 1.3e-06}};
const ModelFamily kErnie4_5 = {"Ernie4_5ForCausalLM",
                               "ernie4_5",
                               ernie4_5::kDefaults,
                               ernie4_5::ReadDense,
                               {.models = "ERNIE 4.5 0.3B",
                                .operators = "interleaved rope",
                                .golden = "tiny-ernie",
                                .error = 4.3e-07}};
const ModelFamily kErnie4_5Moe = {
    "Ernie4_5_MoeForCausalLM",
    "ernie4_5_moe",
    ernie4_5::kMoeDefaults,
    ernie4_5::ReadMoe,
    {.models = "ERNIE 4.5 21B-A3B, 300B-A47B",
     .operators = "interleaved rope; experts with a softmax router, a selection bias and "
                  "normalized routing weights; a shared expert",
     .golden = "tiny-ernie-moe",
     .error = 9.6e-07}};

}  // namespace sluice
