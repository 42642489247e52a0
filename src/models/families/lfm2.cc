// LFM2, LFM2-MoE and LFM3: short convolutions in most layers, attention with per-head norms in the
// others. LFM2-MoE: experts after the first layers, chosen by sigmoid scores plus a bias. LFM3:
// like LFM2, with norms after sublayers, a gate per head, and a window in some of the attention
// layers.
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/proportional_rope.h"
#include "models/registry.h"

namespace sluice {
namespace lfm2 {
namespace {

// Older files use tie_embedding for tie_word_embeddings.
Status ReadTiedEmbedding(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto tied, fields.Bool("tie_embedding"));
  if (!tied) return {};
  config.tie_word_embeddings = config.spec.tied_head = *tied;
  return {};
}

Result<std::vector<bool>> ReadConvolutionLayers(const JsonFields& fields,
                                                const ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kConvolution}));
  ASSIGN_OR_RETURN(const auto attends, ReadLayerSet(fields, config, "full_attn_idxs"));
  std::vector<bool> mixes;
  for (size_t i = 0; i < config.spec.layers.size(); ++i)
    mixes.push_back(types ? (*types)[i] == kConvolution : attends && !(*attends)[i]);
  return mixes;
}

// Reads the fields that all models share. `mixes`: whether each layer has a convolution.
Status ReadCommon(const JsonFields& fields, const std::vector<bool>& mixes, int64_t default_width,
                  ModelConfig& config) {
  RETURN_IF_ERROR(ReadTiedEmbedding(fields, config));
  ASSIGN_OR_RETURN(const auto width, fields.Integer("conv_L_cache", 1, 1024));
  ASSIGN_OR_RETURN(const auto bias, fields.Bool("conv_bias"));
  const MixerSpec mixer{.kind = MixerSpec::Kind::kShortConvolution,
                        .module = "conv",
                        .conv_width = static_cast<int>(width.value_or(default_width)),
                        .conv_bias = bias.value_or(false),
                        .has_bias = bias.value_or(false),
                        .output_bias = bias.value_or(false),
                        .num_heads = static_cast<int>(config.hidden_size),
                        .head_dim = 1};
  RETURN_IF_ERROR(CheckMixer(fields, {.width = "conv_L_cache"}, mixer));
  config.spec.final_norm = "model.embedding_norm";
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention_norms.before = "operator_norm";
    layer.mlp_norms.before = "ffn_norm";
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.attention.qkv_bias = layer.attention.output_bias = false;
    layer.mlp.module = "feed_forward";
    layer.mlp.gate_projection = "w1";
    layer.mlp.up_projection = "w3";
    layer.mlp.down_projection = "w2";
    layer.mlp.has_bias = false;
  }
  return ReplaceAttention(mixes, mixer, config);
}

Status ReadLayers(const JsonFields& fields, ModelConfig& config) {
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.output_projection = "out_proj";
    layer.attention.q_norm = "q_layernorm";
    layer.attention.k_norm = "k_layernorm";
  }
  ASSIGN_OR_RETURN(const std::vector<bool> mixes, ReadConvolutionLayers(fields, config));
  return ReadCommon(fields, mixes, /*default_width=*/3, config);
}

// Source: transformers' Lfm3Config, Lfm3Attention and Lfm3DecoderLayer.
Status ReadLfm3(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(
      const auto types,
      ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention, kConvolution}));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  ASSIGN_OR_RETURN(const auto sandwich, fields.Bool("use_sandwich_norm"));
  ASSIGN_OR_RETURN(const auto gate, fields.Bool("use_attention_gate"));
  ASSIGN_OR_RETURN(std::vector<float> full_rope,
                   ReadRopeOfKind(fields, kFullAttention, config.head_dim, 1e6, 0.5));
  ASSIGN_OR_RETURN(std::vector<float> window_rope,
                   ReadRopeOfKind(fields, kSlidingAttention, config.head_dim, 1e4, 1));
  config.spec.rope_tables = {std::move(full_rope), std::move(window_rope)};
  std::vector<bool> mixes;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    const bool slides = types ? (*types)[i] == kSlidingAttention : i % 4 == 0 && i > 0;
    mixes.push_back(types ? (*types)[i] == kConvolution : !slides && i % 4 != 2);
    if (slides) {
      layer.attention.span.window = static_cast<int32_t>(window.value_or(256));
      layer.attention.rope_table = 1;
    }
    if (gate.value_or(true)) layer.attention.gate = AttentionGate::kEachHead;
    if (sandwich.value_or(true)) {
      layer.attention_norms.after = "post_operator_norm";
      layer.mlp_norms.after = "post_ffn_norm";
    }
  }
  return ReadCommon(fields, mixes, /*default_width=*/7, config);
}

// Source: transformers' Lfm2Config and Lfm2MLP.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto other_width, fields.Integer("block_ff_dim", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(const auto adjusts, fields.Bool("block_auto_adjust_ff_dim"));
  ASSIGN_OR_RETURN(const auto multiplier, fields.Number("block_ffn_dim_multiplier", 1e-3, 1e3));
  ASSIGN_OR_RETURN(const auto multiple, fields.Integer("block_multiple_of", 1, kMaxConfigWidth));
  int64_t width = other_width.value_or(config.intermediate_size);
  if (adjusts.value_or(true)) {
    width = 2 * width / 3;
    const bool has_none = fields.Has("block_ffn_dim_multiplier") && !multiplier;
    if (!has_none) {
      width = static_cast<int64_t>(multiplier.value_or(1) * static_cast<double>(width));
      const int64_t unit = multiple.value_or(256);
      width = (width + unit - 1) / unit * unit;
    }
  }
  config.intermediate_size = width;
  for (LayerSpec& layer : config.spec.layers) layer.mlp.intermediate_size = width;
  return ReadLayers(fields, config);
}

// Source: transformers' Lfm2MoeConfig and Lfm2MoeTopKRouter.
Status ReadMoe(const JsonFields& fields, ModelConfig& config) {
  MoeSpec moe = {.router_module = "feed_forward.gate",
                 .experts_module = "feed_forward.experts",
                 .gate_projection = "w1",
                 .up_projection = "w3",
                 .down_projection = "w2",
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSigmoid};
  RETURN_IF_ERROR(
      ReadExpertCounts(fields, {.num_experts = 32, .top_k = 4, .intermediate_size = 1792}, moe));
  ASSIGN_OR_RETURN(const auto dense, fields.Integer("num_dense_layers", 0, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const auto has_bias, fields.Bool("use_expert_bias"));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  ASSIGN_OR_RETURN(const auto scale, fields.Number("routed_scaling_factor", 1e-6, 1e6));
  if (has_bias.value_or(true)) moe.choice_bias = "feed_forward.expert_bias";
  moe.normalize = normalize.value_or(true);
  moe.weight_scale = static_cast<float>(scale.value_or(1));
  RETURN_IF_ERROR(ReadLayers(fields, config));
  for (size_t i = static_cast<size_t>(dense.value_or(2)); i < config.spec.layers.size(); ++i) {
    config.spec.layers[i].mlp.intermediate_size = 0;
    config.spec.layers[i].moe = moe;
  }
  return {};
}

constexpr ConfigDefaults DefaultsOf(int64_t hidden_size, int64_t intermediate_size) {
  return {.vocab_size = 65536,
          .hidden_size = hidden_size,
          .intermediate_size = intermediate_size,
          .num_hidden_layers = 32,
          .num_attention_heads = 32,
          .kv_heads = 8,
          .max_position_embeddings = 128000,
          .rms_norm_eps = 1e-5,
          .norm_eps_field = "norm_eps",
          .rope_theta = 1e6,
          .bos_token_id = 1,
          .eos_token_id = 2,
          .tie_word_embeddings = true};
}

constexpr ConfigDefaults kLfm3Defaults = {.vocab_size = 128000,
                                          .hidden_size = 2048,
                                          .intermediate_size = 7680,
                                          .num_hidden_layers = 24,
                                          .num_attention_heads = 16,
                                          .kv_heads = 4,
                                          .head_dim = 128,
                                          .max_position_embeddings = 128000,
                                          .rms_norm_eps = 1e-5,
                                          .norm_eps_field = "norm_eps",
                                          .rope_theta = 1e6,
                                          .bos_token_id = 124894,
                                          .eos_token_id = 124900,
                                          .tie_word_embeddings = true};

}  // namespace
}  // namespace lfm2

const ModelFamily kLfm2 = {
    "Lfm2ForCausalLM",
    "lfm2",
    lfm2::DefaultsOf(2560, 12288),
    lfm2::Read,
    {.models = "LFM2 350M, 700M, 1.2B, 2.6B, LFM2.5 230M to 1.2B",
     .operators =
         "short convolutions instead of attention in most layers; per-head norms of q and k",
     .golden = "tiny-lfm2",
     .error = 8.5e-07}};
const ModelFamily kLfm2Moe = {"Lfm2MoeForCausalLM",
                              "lfm2_moe",
                              lfm2::DefaultsOf(2048, 7168),
                              lfm2::ReadMoe,
                              {.models = "LFM2 8B-A1B, LFM2.5 8B-A1B, LFM2 24B-A2B",
                               .operators = "like Lfm2; experts with a sigmoid router and a "
                                            "selection bias, except in the first layers",
                               .golden = "tiny-lfm2-moe",
                               .error = 7.4e-07}};

const ModelFamily kLfm3 = {
    "Lfm3ForCausalLM",
    "lfm3",
    lfm2::kLfm3Defaults,
    lfm2::ReadLfm3,
    {.models = "LFM3 1.7B",
     .operators = "like Lfm2; norms after sublayers; a gate per head; windows, with their own "
                  "rope, in half of the attention layers",
     .golden = "tiny-lfm3",
     .error = 1e-06}};

}  // namespace sluice
