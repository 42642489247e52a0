// Kimi Linear and Ling 3: most layers have Kimi Delta Attention, a delta rule with a decay for each
// element of a key. The others have latent attention. Experts are chosen by sigmoid scores plus a
// bias, which does not affect their weights.
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/latent_fields.h"
#include "models/registry.h"

namespace sluice {
namespace kimi_linear {
namespace {

// Returns the layers with Kimi Delta Attention from Kimi's own block, whose lists count layers from
// one.
Result<std::vector<bool>> MixingLayersOfBlock(const JsonFields& block, const ModelConfig& config) {
  constexpr const char* kMixing = "kda_layers";
  std::vector<bool> mixes(config.spec.layers.size(), false);
  const json::Value* const listed = block.Given(kMixing);
  if (listed == nullptr) {
    for (size_t i = 0; i < mixes.size(); ++i) mixes[i] = i == 0 || i % 4 != 0;
    return mixes;
  }
  const auto bad = [&](const json::Value& found) {
    return block.Bad(kMixing,
                     fmt::format("a list of layers from 1 to num_hidden_layers {}", mixes.size()),
                     found);
  };
  if (!listed->is_array()) return bad(*listed);
  for (const json::Value& layer : listed->as_array()) {
    if (!layer.is_integer() || layer.as_integer() < 1 ||
        layer.as_integer() > static_cast<int64_t>(mixes.size()))
      return bad(layer);
    mixes[static_cast<size_t>(layer.as_integer() - 1)] = true;
  }
  return mixes;
}

// Returns the layers with Kimi Delta Attention. Without a list, every `every`-th layer has
// attention instead.
Result<std::vector<bool>> ReadMixing(const JsonFields& fields, const ModelConfig& config,
                                     const std::optional<JsonFields>& block, int64_t every) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kLinearAttention}));
  if (!types && block) return MixingLayersOfBlock(*block, config);
  std::vector<bool> mixes;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    mixes.push_back(types ? (*types)[i] == kLinearAttention
                          : static_cast<int64_t>(i + 1) % every != 0);
  }
  return mixes;
}

struct KimiDeltaFields {
  const char* heads = "linear_num_heads";
  const char* head_dim = "linear_head_dim";
  const char* conv_width = "linear_conv_kernel_dim";
};

// Source: transformers' Glm5NextTextLinearAttention.
Result<MixerSpec> ReadKimiDelta(const JsonFields& fields, const KimiDeltaFields& names,
                                int64_t default_heads, const ModelConfig& config) {
  if (config.activation != Activation::kSilu) {
    return Fail(ErrorCode::kUnsupported,
                "a hidden_act other than silu is not supported in layers of linear attention",
                "hidden_act");
  }
  MixerSpec mixer{.kind = MixerSpec::Kind::kDeltaRule,
                  .module = "self_attn",
                  .projections = MixerSpec::Projections::kEach,
                  .norm = MixerSpec::Norm::kOfHeads,
                  .norm_eps = static_cast<float>(config.rms_norm_eps),
                  .decays_keys = true,
                  .has_sigmoid_gate = true};
  const auto read = [&](const char* name, int64_t most, int64_t absent, int& number) -> Status {
    ASSIGN_OR_RETURN(const auto given, fields.Integer(name, 1, most));
    number = static_cast<int>(given.value_or(absent));
    return {};
  };
  RETURN_IF_ERROR(read(names.heads, 4096, default_heads, mixer.num_heads));
  RETURN_IF_ERROR(read(names.head_dim, 4096, 128, mixer.head_dim));
  RETURN_IF_ERROR(read(names.conv_width, 1024, 4, mixer.conv_width));
  mixer.num_key_heads = mixer.num_heads;
  mixer.key_dim = mixer.head_dim;
  RETURN_IF_ERROR(CheckMixer(
      fields, {.width = names.conv_width, .heads = names.heads, .key_heads = names.heads}, mixer));
  return mixer;
}

// Source: transformers' KimiLinearConfig, KimiLinearAttention and KimiLinearDeltaAttention.
Status ReadKimi(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(CheckMethod(fields, "moe_router_activation_func", {"sigmoid"}));
  ASSIGN_OR_RETURN(const auto without_rope, fields.Bool("mla_use_nope"));
  if (!without_rope.value_or(true)) {
    return Fail(ErrorCode::kUnsupported,
                "mla_use_nope false is not supported: attention of this architecture has no rope",
                "mla_use_nope");
  }
  RETURN_IF_ERROR(ReadLatentAttention(
      fields, {.kv_rank = 512, .nope_dim = 128, .value_dim = 128, .reads_interleaved = false},
      config));
  ASSIGN_OR_RETURN(const json::Value* given, fields.Object("linear_attn_config"));
  std::optional<JsonFields> block;
  if (given != nullptr) block.emplace(*given, "linear_attn_config.");
  ASSIGN_OR_RETURN(const std::vector<bool> mixes, ReadMixing(fields, config, block, 4));
  const KimiDeltaFields names =
      block ? KimiDeltaFields{"num_heads", "head_dim", "short_conv_kernel_size"}
            : KimiDeltaFields{};
  ASSIGN_OR_RETURN(MixerSpec mixer, ReadKimiDelta(block ? *block : fields, names, 32, config));
  mixer.low_rank = mixer.head_dim;
  RETURN_IF_ERROR(ReadSigmoidExperts(fields,
                                     {.num_experts = 256,
                                      .top_k = 8,
                                      .intermediate_size = 1024,
                                      .weight_scale = 2.446,
                                      .dense = 1},
                                     config));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.rope = false;
    if (!layer.moe) continue;
    layer.moe->router_module = "block_sparse_moe.gate";
    layer.moe->experts_module = "block_sparse_moe.experts";
    layer.moe->choice_bias = "block_sparse_moe.gate.e_score_correction_bias";
    layer.moe->gate_projection = "w1";
    layer.moe->up_projection = "w3";
    layer.moe->down_projection = "w2";
    layer.mlp.module = "block_sparse_moe.shared_experts";
  }
  return ReplaceAttention(mixes, mixer, config);
}

// Source: transformers' BailingHybridConfig, BailingHybridAttention and
// BailingHybridDeltaAttention.
Status ReadLing(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadLatentAttention(
      fields, {.kv_rank = 512, .nope_dim = 128, .value_dim = 128, .reads_interleaved = false},
      config));
  ASSIGN_OR_RETURN(const auto every, fields.Integer("layer_group_size", 1, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const std::vector<bool> mixes,
                   ReadMixing(fields, config, std::nullopt, every.value_or(6)));
  ASSIGN_OR_RETURN(MixerSpec mixer, ReadKimiDelta(fields,
                                                  {.heads = "num_attention_heads",
                                                   .head_dim = "head_dim",
                                                   .conv_width = "short_conv_kernel_size"},
                                                  config.num_attention_heads, config));
  mixer.module = "attention";
  mixer.output_projection = "dense";
  ASSIGN_OR_RETURN(const auto is_bounded, fields.Bool("kda_safe_gate"));
  ASSIGN_OR_RETURN(const auto bound, fields.Number("kda_lower_bound", -100, -1e-6));
  if (is_bounded.value_or(true)) mixer.decay_bound = static_cast<float>(bound.value_or(-5.0));
  RETURN_IF_ERROR(ReadSigmoidExperts(fields,
                                     {.num_experts = 512,
                                      .top_k = 8,
                                      .intermediate_size = 768,
                                      .weight_scale = 2.5,
                                      .groups = 8,
                                      .kept_groups = 4,
                                      .dense = 2},
                                     config));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.module = "attention";
    layer.attention.output_projection = "dense";
    layer.attention.gate = AttentionGate::kEachHead;
    layer.attention.gate_projection = "g_proj";
    if (layer.moe) layer.moe->choice_bias = "mlp.gate.expert_bias";
  }
  return ReplaceAttention(mixes, mixer, config);
}

constexpr FieldAlias kKimiAliases[] = {{"model_max_length", "max_position_embeddings"},
                                       {"moe_renormalize", "norm_topk_prob"},
                                       {"num_expert_group", "n_group"},
                                       {"num_experts_per_token", "num_experts_per_tok"},
                                       {"num_shared_experts", "n_shared_experts"}};
constexpr ConfigDefaults kKimiDefaults = {.vocab_size = 163840,
                                          .hidden_size = 2304,
                                          .intermediate_size = 9216,
                                          .num_hidden_layers = 27,
                                          .num_attention_heads = 32,
                                          .kv_heads = 32,
                                          .max_position_embeddings = 1048576,
                                          .rms_norm_eps = 1e-5,
                                          .bos_token_id = 163584,
                                          .eos_token_id = 163586,
                                          .rope_head_dim = 64,
                                          .aliases = kKimiAliases};
constexpr ConfigDefaults kLingDefaults = {.vocab_size = 157184,
                                          .hidden_size = 2560,
                                          .intermediate_size = 6144,
                                          .num_hidden_layers = 42,
                                          .num_attention_heads = 32,
                                          .kv_heads = 32,
                                          .max_position_embeddings = 262144,
                                          .rope_theta = 6e6,
                                          .eos_token_id = 156895,
                                          .rope_head_dim = 64,
                                          .aliases = kKimiAliases};

}  // namespace
}  // namespace kimi_linear

const ModelFamily kKimiLinear = {
    "KimiLinearForCausalLM",
    "kimi_linear",
    kimi_linear::kKimiDefaults,
    kimi_linear::ReadKimi,
    {.models = "Kimi Linear 48B-A3B",
     .operators =
         "a delta rule with a separate decay for each key dimension (KDA) instead of attention in "
         "most layers; latent attention without rope in the other layers; experts like DeepSeek V3",
     .golden = "tiny-kimi-linear",
     .error = 1.1e-06}};

const ModelFamily kBailingHybrid = {
    "BailingHybridForCausalLM",
    "bailing_hybrid",
    kimi_linear::kLingDefaults,
    kimi_linear::ReadLing,
    {.models = "Ling 3",
     .operators = "like Kimi Linear, with bounded decays; latent attention with a gate per head",
     .golden = "tiny-bailing-hybrid",
     .error = 2.9e-06}};

}  // namespace sluice
