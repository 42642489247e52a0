// Mellum 2: the attention and experts of Qwen3-MoE. Some layers have a window and separate RoPE
// frequencies.
#include "models/family_fields.h"
#include "models/registry.h"
#include "models/rope_frequencies.h"

namespace sluice {
namespace mellum {
namespace {

// Source: transformers' MellumConfig and MellumAttention.
Status Read(const JsonFields& fields, ModelConfig& config) {
  constexpr double kDefaultTheta = 500000, kDefaultLocalTheta = 10000;
  RopeConfig local = {.theta = kDefaultLocalTheta};
  ASSIGN_OR_RETURN(const bool has_blocks,
                   ReadRopeBlocks(fields, kDefaultLocalTheta, config, local));
  // A RoPE base outside the blocks is ignored.
  if (!has_blocks) config.rope = {.theta = kDefaultTheta};
  DescribeRope(config.rope, config.head_dim, config.spec, {RopeTableOf(local, config.head_dim)});
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation};
  RETURN_IF_ERROR(
      ReadExpertCounts(fields, {.num_experts = 64, .top_k = 8, .intermediate_size = 896}, moe));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  moe.normalize = normalize.value_or(true);
  // Without layer_types, no layer has a window.
  ASSIGN_OR_RETURN(const std::vector<bool> slides,
                   ReadWindowLayers(fields, {.window = 1024, .pattern = 1}, config));
  ASSIGN_OR_RETURN(const std::vector<bool> sparse, ReadMlpLayerTypes(fields, config, 0));
  for (size_t i = 0; i < slides.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.attention.rope_table = slides[i] ? 1 : 0;
    layer.mlp.has_bias = false;
    if (!sparse[i]) continue;
    layer.mlp.intermediate_size = 0;
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 98304,
                                      .hidden_size = 2304,
                                      .intermediate_size = 7168,
                                      .num_hidden_layers = 28,
                                      .num_attention_heads = 32,
                                      .kv_heads = 4,
                                      .head_dim = 128,
                                      .max_position_embeddings = 131072,
                                      .rope_theta = 500000};

}  // namespace
}  // namespace mellum

const ModelFamily kMellum = {"MellumForCausalLM",
                             "mellum",
                             mellum::kDefaults,
                             mellum::Read,
                             {.models = "Mellum 2 12B-A2.5B",
                              .operators = "per-head norms; experts with a softmax router; windows "
                                           "in some layers, with their own rope",
                              .golden = "tiny-mellum",
                              .error = 1.5e-06}};

}  // namespace sluice
