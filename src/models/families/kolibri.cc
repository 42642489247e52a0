// Kolibri: norms before and after sublayers, and of heads of q and k. Most layers have a window;
// the others have no RoPE. Every layer has a shared expert, and experts that are chosen by logits
// plus bias and weighted by sigmoids.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace kolibri {
namespace {

// Source: transformers' Kolibri1Config, Kolibri1DecoderLayer and Kolibri1TopKRouter.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(
      const std::vector<bool> slides,
      ReadWindowLayers(fields, {.window = 513, .pattern = 5, .pattern_field = ""}, config));
  const bool has_windows =
      fields.Given("sliding_window") != nullptr || !fields.Has("sliding_window");
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSigmoid,
                 .choice_bias = "moe.router.expert_bias",
                 .chooses_by_logits = true};
  RETURN_IF_ERROR(
      ReadExpertCounts(fields, {.num_experts = 384, .top_k = 6, .intermediate_size = 512}, moe));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  moe.normalize = normalize.value_or(false);
  ASSIGN_OR_RETURN(const auto shared,
                   fields.Integer("shared_expert_intermediate_size", 1, kMaxConfigWidth));
  for (size_t i = 0; i < slides.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention_norms.after = "post_attn_norm";
    layer.mlp_norms.after = "post_ffn_norm";
    layer.attention.rope = slides[i] || !has_windows;
    layer.attention.qkv_bias = layer.attention.output_bias = false;
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.mlp.module = "mlp.shared_experts";
    layer.mlp.has_bias = false;
    layer.mlp.intermediate_size = shared.value_or(512);
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 128000,
                                      .hidden_size = 2560,
                                      // The only MLP is the shared expert.
                                      .intermediate_size = 512,
                                      .num_hidden_layers = 50,
                                      .num_attention_heads = 48,
                                      .kv_heads = 4,
                                      .head_dim = 128,
                                      .max_position_embeddings = 262144};

}  // namespace
}  // namespace kolibri

const ModelFamily kKolibri = {
    "Kolibri1ForCausalLM",
    "kolibri1",
    kolibri::kDefaults,
    kolibri::Read,
    {.models = "Kolibri 1",
     .operators = "norms before and after sublayers; per-head norms; windows; no rope in layers "
                  "without a window; experts that the router selects by logits plus a bias, and "
                  "weights by sigmoids; a shared expert",
     .golden = "tiny-kolibri",
     .error = 1.2e-06}};

}  // namespace sluice
