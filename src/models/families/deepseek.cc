// DeepSeek V2 and V3, and models with V3's layers: latent attention; after the first layers,
// experts chosen by groups, and one or two shared experts. V3 (R1, V3.1, Kimi K2) scores experts by
// sigmoids with a bias that affects only the choice, and scales the weights to a constant sum. V2
// uses a softmax. Youtu has no experts.
#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/latent_fields.h"
#include "models/registry.h"

namespace sluice {
namespace deepseek {
namespace {

// Source: transformers' DeepseekV3Config and modeling_deepseek_v3.py.
Status ReadV3(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadLatentAttention(
      fields, {.q_rank = 1536, .kv_rank = 512, .nope_dim = 128, .value_dim = 128}, config));
  return ReadSigmoidExperts(fields,
                            {.num_experts = 256,
                             .top_k = 8,
                             .intermediate_size = 2048,
                             .weight_scale = 2.5,
                             .groups = 8,
                             .kept_groups = 4,
                             .dense = 3},
                            config);
}

// Source: transformers' DeepseekV2Config and modeling_deepseek_v2.py, which ignores norm_topk_prob.
// It is false in published configurations.
Status ReadV2(const JsonFields& fields, ModelConfig& config) {
  constexpr const char* kMethod = "topk_method";
  constexpr const char* kInGroups = "group_limited_greedy";
  RETURN_IF_ERROR(CheckMethod(fields, kMethod, {"greedy", kInGroups}));
  RETURN_IF_ERROR(CheckMethod(fields, "scoring_func", {"softmax"}));
  RETURN_IF_ERROR(ReadLatentAttention(fields,
                                      {.q_rank = 1536,
                                       .kv_rank = 512,
                                       .nope_dim = 128,
                                       .value_dim = 128,
                                       .reads_interleaved = false},
                                      config));
  MoeSpec moe;
  moe.group_best = 1;
  RETURN_IF_ERROR(ReadDeepseekExperts(
      fields,
      {.num_experts = 64, .top_k = 6, .intermediate_size = 1407, .shared = 2, .normalize = false},
      moe, config));
  ASSIGN_OR_RETURN(const auto method, fields.String(kMethod));
  if (method.value_or("greedy") == kInGroups) return {};
  for (LayerSpec& layer : config.spec.layers)
    if (layer.moe) layer.moe->num_groups = layer.moe->kept_groups = 1;
  return {};
}

// Source: transformers' Glm4MoeLiteConfig and modeling_glm4_moe_lite.py.
Status ReadGlmLite(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadLatentAttention(
      fields, {.q_rank = 768, .kv_rank = 512, .nope_dim = 192, .value_dim = 256}, config));
  return ReadSigmoidExperts(
      fields,
      {.num_experts = 64, .top_k = 4, .intermediate_size = 1536, .weight_scale = 1.8, .dense = 1},
      config);
}

// Reads Sarvam 105B, which has DeepSeek V3's architecture. Source: transformers' SarvamMLAConfig.
Status ReadSarvam(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(
      ReadLatentAttention(fields, {.kv_rank = 512, .nope_dim = 128, .value_dim = 128}, config));
  return ReadSigmoidExperts(fields,
                            {.num_experts = 128,
                             .top_k = 8,
                             .intermediate_size = 2048,
                             .weight_scale = 2.5,
                             .dense = 1,
                             .draft_layers = 0},
                            config);
}

// Reads A.X K1, which has DeepSeek V3's layers with a norm after experts. Published files also have
// such norms in layers without experts, which are not used, and lack the choice bias. Source:
// transformers' AXK1Config and AXK1MoE.
Status ReadAxk1(const JsonFields& fields, ModelConfig& config) {
  if (fields.Has("q_lora_rank") && fields.Given("q_lora_rank") == nullptr) {
    return Fail(ErrorCode::kUnsupported,
                "q_lora_rank null is not supported by this architecture, whose q has a rank",
                "q_lora_rank");
  }
  RETURN_IF_ERROR(ReadLatentAttention(
      fields, {.q_rank = 1536, .kv_rank = 512, .nope_dim = 128, .value_dim = 128}, config));
  RETURN_IF_ERROR(ReadSigmoidExperts(fields,
                                     {.num_experts = 192,
                                      .top_k = 8,
                                      .intermediate_size = 2048,
                                      .weight_scale = 2.5,
                                      .groups = 8,
                                      .kept_groups = 4,
                                      .dense = 1,
                                      .draft_layers = 0},
                                     config));
  constexpr const char* kNorm = "post_mlp_layernorm";
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    if (!layer.moe) {
      config.spec.unread_modules.push_back(fmt::format("model.layers.{}.{}.", i, kNorm));
      continue;
    }
    layer.mlp_norms.after = kNorm;
    layer.moe->may_lack_choice_bias = true;
  }
  return {};
}

// Source: transformers' YoutuConfig and modular_youtu.py.
Status ReadYoutu(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadLatentAttention(
      fields, {.q_rank = 1536, .kv_rank = 512, .nope_dim = 128, .value_dim = 128}, config));
  for (LayerSpec& layer : config.spec.layers) layer.mlp.has_bias = false;
  return {};
}

constexpr ConfigDefaults kV3Defaults = {.vocab_size = 129280,
                                        .hidden_size = 7168,
                                        .intermediate_size = 18432,
                                        .num_hidden_layers = 61,
                                        .num_attention_heads = 128,
                                        .kv_heads = 128,
                                        .max_position_embeddings = 4096,
                                        .bos_token_id = 0,
                                        .eos_token_id = 1,
                                        .rope_head_dim = 64};
constexpr ConfigDefaults kV2Defaults = {.vocab_size = 102400,
                                        .hidden_size = 4096,
                                        .intermediate_size = 11008,
                                        .num_hidden_layers = 32,
                                        .num_attention_heads = 32,
                                        .max_position_embeddings = 2048,
                                        .bos_token_id = 1,
                                        .eos_token_id = 2,
                                        .rope_head_dim = 64};
constexpr ConfigDefaults kGlmLiteDefaults = {.vocab_size = 154880,
                                             .hidden_size = 2048,
                                             .intermediate_size = 10240,
                                             .num_hidden_layers = 47,
                                             .num_attention_heads = 20,
                                             .kv_heads = 20,
                                             .max_position_embeddings = 202752,
                                             .rms_norm_eps = 1e-5,
                                             .bos_token_id = 0,
                                             .eos_token_id = 1,
                                             .rope_head_dim = 64};

constexpr FieldAlias kSarvamAliases[] = {{"num_experts", "n_routed_experts"},
                                         {"num_shared_experts", "n_shared_experts"}};
constexpr ConfigDefaults kSarvamDefaults = {.vocab_size = 262144,
                                            .hidden_size = 4096,
                                            .intermediate_size = 16384,
                                            .num_hidden_layers = 32,
                                            .num_attention_heads = 64,
                                            .max_position_embeddings = 4096,
                                            .bos_token_id = 0,
                                            .eos_token_id = 1,
                                            .rope_head_dim = 64,
                                            .aliases = kSarvamAliases};
constexpr ConfigDefaults kAxk1Defaults = {.vocab_size = 163840,
                                          .hidden_size = 7168,
                                          .intermediate_size = 18432,
                                          .num_hidden_layers = 61,
                                          .num_attention_heads = 64,
                                          .kv_heads = 64,
                                          .max_position_embeddings = 32768,
                                          .bos_token_id = 163691,
                                          .eos_token_id = 163691,
                                          .rope_head_dim = 64};
constexpr ConfigDefaults kYoutuDefaults = {.vocab_size = 128256,
                                           .hidden_size = 2048,
                                           .intermediate_size = 6144,
                                           .num_hidden_layers = 32,
                                           .num_attention_heads = 16,
                                           .kv_heads = 16,
                                           .max_position_embeddings = 131072,
                                           .bos_token_id = 128000,
                                           .eos_token_id = 128001,
                                           .tie_word_embeddings = true,
                                           .rope_head_dim = 64};

constexpr ConfigDefaults NestedV3() {
  ConfigDefaults defaults = kV3Defaults;
  defaults.is_nested = true;
  return defaults;
}

}  // namespace
}  // namespace deepseek

const ModelFamily kDeepseekV2 = {
    "DeepseekV2ForCausalLM",
    "deepseek_v2",
    deepseek::kV2Defaults,
    deepseek::ReadV2,
    {.models = "DeepSeek V2, V2-Lite, V2.5",
     .operators = "latent attention; experts with a softmax router, limited to the groups with the "
                  "best experts; shared experts",
     .golden = "tiny-deepseek-v2",
     .error = 8.7e-07}};
const ModelFamily kDeepseekV3 = {
    "DeepseekV3ForCausalLM",
    "deepseek_v3",
    deepseek::kV3Defaults,
    deepseek::ReadV3,
    {.models = "DeepSeek V3, R1, V3.1; Kimi K2",
     .operators =
         "latent attention with 576 numbers per token in the cache; experts with a group-limited "
         "sigmoid router, a selection bias and scaled routing weights; a shared expert",
     .golden = "tiny-deepseek-v3",
     .error = 7.2e-07},
    nullptr,
    "kimi_k2"};
const ModelFamily kGlm4MoeLite = {
    "Glm4MoeLiteForCausalLM",
    "glm4_moe_lite",
    deepseek::kGlmLiteDefaults,
    deepseek::ReadGlmLite,
    {.models = "GLM-4.7-Flash",
     .operators = "latent attention; experts with a sigmoid router, a selection bias and scaled "
                  "routing weights; a shared expert",
     .golden = "tiny-glm4-lite",
     .error = 1e-06}};

const ModelFamily kKimiK25 = {
    "KimiK25ForConditionalGeneration",
    "kimi_k25",
    deepseek::NestedV3(),
    deepseek::ReadV3,
    {.models = "Kimi K2.5 and later",
     .operators = "text like DeepseekV3ForCausalLM; images: MoonViT, positions from a table with "
                  "bicubic interpolation, 2-D rope, two norms, two projections",
     .golden = "tiny-kimi-k25",
     .error = 1.1e-06},
    nullptr,
    {},
    "Kimi_K25ForConditionalGeneration"};

const ModelFamily kSarvamMla = {
    "DeepseekV3ForCausalLM",
    "sarvam_mla",
    deepseek::kSarvamDefaults,
    deepseek::ReadSarvam,
    {.models = "Sarvam 105B",
     .operators = "like DeepSeek V3, with q computed directly from the hidden states",
     .golden = "tiny-sarvam-mla",
     .error = 1.6e-06},
    nullptr,
    {},
    "SarvamMLAForCausalLM"};

const ModelFamily kAxk1 = {
    "AXK1ForCausalLM",
    "axk1",
    deepseek::kAxk1Defaults,
    deepseek::ReadAxk1,
    {.models = "A.X K1 519B-A33B",
     .operators = "like DeepSeek V3, with norms after experts, and without a selection bias",
     .golden = "tiny-axk1, tiny-axk1-unbiased",
     .error = 8.8e-07}};

const ModelFamily kYoutu = {
    "YoutuForCausalLM",
    "youtu",
    deepseek::kYoutuDefaults,
    deepseek::ReadYoutu,
    {.models = "Youtu-LLM 2B",
     .operators = "latent attention with 576 numbers per token in the cache",
     .golden = "tiny-youtu",
     .error = 9e-07}};

}  // namespace sluice
