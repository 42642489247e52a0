// Lara Mini: Gated DeltaNet in some layers, with its projections in one tensor; attention with
// per-head norms in the others. Half of the attention layers have a window; the other half have no
// RoPE. Every layer has a shared expert, and experts chosen by softmax.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace lara_mini {
namespace {

// Source: transformers' LaraMiniConfig, LaraMiniGatedDeltaNet and LaraMiniModel.
Status Read(const JsonFields& fields, ModelConfig& config) {
  constexpr std::string_view kPattern[] = {kLinearAttention, kSlidingAttention, kLinearAttention,
                                           kFullAttention, kSlidingAttention};
  ASSIGN_OR_RETURN(
      const auto types,
      ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention, kLinearAttention}));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  ASSIGN_OR_RETURN(MixerSpec mixer, ReadDeltaRule(fields, {.key_heads = 8, .heads = 16}, config));
  mixer.projections = MixerSpec::Projections::kOneByKind;
  mixer.norm_module = "out_norm";
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSoftmax};
  RETURN_IF_ERROR(
      ReadExpertCounts(fields, {.num_experts = 128, .top_k = 4, .intermediate_size = 512}, moe));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  moe.normalize = normalize.value_or(true);
  ASSIGN_OR_RETURN(const auto shared,
                   fields.Integer("shared_expert_intermediate_size", 1, kMaxConfigWidth));
  std::vector<bool> mixes;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    const std::string_view type = types ? (*types)[i] : kPattern[i % std::size(kPattern)];
    mixes.push_back(type == kLinearAttention);
    layer.attention.rope = type == kSlidingAttention;
    if (type == kSlidingAttention)
      layer.attention.span.window = static_cast<int32_t>(window.value_or(512));
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.mlp.module = "mlp.shared_expert";
    layer.mlp.has_bias = false;
    layer.mlp.intermediate_size = shared.value_or(512);
    layer.moe = moe;
  }
  return ReplaceAttention(mixes, mixer, config);
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 151936,
                                      .hidden_size = 1024,
                                      // The only MLP is the shared expert.
                                      .intermediate_size = 512,
                                      .num_hidden_layers = 34,
                                      .num_attention_heads = 16,
                                      .kv_heads = 4,
                                      .head_dim = 128,
                                      .max_position_embeddings = 131072,
                                      .eos_token_id = 151643,
                                      .tie_word_embeddings = true};

}  // namespace
}  // namespace lara_mini

const ModelFamily kLaraMini = {
    "LaraMiniForCausalLM",
    "lara_mini",
    lara_mini::kDefaults,
    lara_mini::Read,
    {.models = "Lara 4 Mini",
     .operators =
         "Gated DeltaNet in two of five layers; per-head norms; windows; no rope in attention "
         "layers without a window; experts with a softmax router; a shared expert",
     .golden = "tiny-lara-mini",
     .error = 7.1e-07}};

}  // namespace sluice
