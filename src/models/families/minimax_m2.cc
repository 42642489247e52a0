// MiniMax M2 to M2.7: RoPE on half of each head; one norm over all heads of q, and one over all
// heads of k. All layers have experts, chosen by sigmoid scores plus a bias, which does not affect
// their weights.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace minimax_m2 {
namespace {

// Source: transformers' MiniMaxM2Config, MiniMaxM2Attention and MiniMaxM2TopKRouter.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  MoeSpec moe = {.router_module = "block_sparse_moe.gate",
                 .experts_module = "block_sparse_moe.experts",
                 .gate_projection = "w1",
                 .up_projection = "w3",
                 .down_projection = "w2",
                 .intermediate_size = config.intermediate_size,
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSigmoid,
                 .choice_bias = "block_sparse_moe.e_score_correction_bias",
                 .normalize = true};
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.num_experts = 256, .top_k = 8}, moe));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qkv_bias = layer.attention.output_bias = false;
    layer.attention.qk_norm = QkNorm::kWholeWidth;
    layer.mlp.intermediate_size = 0;
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 200064,
                                      .hidden_size = 3072,
                                      .intermediate_size = 1536,
                                      .num_hidden_layers = 62,
                                      .num_attention_heads = 48,
                                      .kv_heads = 8,
                                      .head_dim = 128,
                                      .max_position_embeddings = 196608,
                                      .rope_theta = 5e6,
                                      .partial_rotary_factor = 1,
                                      .takes_rotary_dim = true,
                                      .bos_token_id = 200034,
                                      .eos_token_id = 200020};

}  // namespace
}  // namespace minimax_m2

const ModelFamily kMiniMaxM2 = {
    "MiniMaxM2ForCausalLM",
    "minimax_m2",
    minimax_m2::kDefaults,
    minimax_m2::Read,
    {.models = "MiniMax M2, M2.1, M2.5, M2.7",
     .operators = "rope on a part of a head; norms of q and k over all heads; experts with a "
                  "sigmoid router and a selection bias",
     .golden = "tiny-minimax-m2",
     .error = 4.7e-07}};

}  // namespace sluice
