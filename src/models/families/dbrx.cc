// DBRX: layer norms without biases; q, k and v are clamped; experts chosen by softmax in every
// layer.
#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"
#include "models/rope_frequencies.h"

namespace sluice {
namespace dbrx {
namespace {

// Returns the object with this name, or an empty one if it is absent.
Result<json::Value> ReadBlock(const JsonFields& fields, const char* name) {
  ASSIGN_OR_RETURN(const json::Value* block, fields.Object(name));
  return block != nullptr ? *block : json::Value(json::Value::Object{});
}

// Source: transformers' DbrxAttention.
Status ReadAttention(const JsonFields& own, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto heads, own.Integer("kv_n_heads", 1, config.num_attention_heads));
  ASSIGN_OR_RETURN(const auto limit, own.Number("clip_qkv", 1e-6, 1e6));
  config.num_key_value_heads = heads.value_or(1);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    return own.Bad("kv_n_heads", fmt::format("a divisor of n_heads {}", config.num_attention_heads),
                   json::Value(config.num_key_value_heads));
  }
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention_norms.before = "norm_attn_norm.norm_1";
    layer.mlp_norms.before = "norm_attn_norm.norm_2";
    AttentionSpec& attention = layer.attention;
    attention.module = "norm_attn_norm.attn";
    attention.qkv_projection = "Wqkv";
    attention.output_projection = "out_proj";
    attention.qkv_bias = attention.output_bias = false;
    attention.qkv_limit = static_cast<float>(limit.value_or(0));
    attention.num_kv_heads = static_cast<int>(config.num_key_value_heads);
  }
  return {};
}

// Source: transformers' DbrxRouter, DbrxFFN and DbrxExpertGLU.
Status ReadExperts(const JsonFields& own, ModelConfig& config) {
  MoeSpec moe = {.router_module = "ffn.router.layer",
                 .experts_module = "ffn.experts.mlp",
                 .fused_down = "w2",
                 .fused_gate = "w1",
                 .fused_up = "v1",
                 .fused_flat = true,
                 .score = kernels::RouterScore::kSoftmax};
  ASSIGN_OR_RETURN(const auto count, own.Integer("moe_num_experts", 1, kMaxConfigExperts));
  ASSIGN_OR_RETURN(const auto top_k, own.Integer("moe_top_k", 1, kMaxConfigExperts));
  ASSIGN_OR_RETURN(const auto width, own.Integer("ffn_hidden_size", 1, kMaxConfigWidth));
  moe.num_experts = count.value_or(4);
  moe.top_k = top_k.value_or(1);
  moe.intermediate_size = width.value_or(3584);
  if (moe.top_k > moe.num_experts) {
    return own.Bad("moe_top_k", fmt::format("at most moe_num_experts {}", moe.num_experts),
                   json::Value(moe.top_k));
  }
  constexpr const char *kNorm = "moe_normalize_expert_weights", *kActivation = "ffn_act_fn";
  ASSIGN_OR_RETURN(const auto norm, own.Number(kNorm, 0, 1e6));
  const bool has_norm = norm || !own.Has(kNorm);
  if (norm && *norm != 1) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("ffn_config.{} {} is not supported; supported are 1 and null", kNorm, *norm),
        kNorm);
  }
  moe.normalize = has_norm;
  ASSIGN_OR_RETURN(const json::Value* activation, own.Object(kActivation));
  if (activation != nullptr) {
    ASSIGN_OR_RETURN(const auto name, JsonFields(*activation, "ffn_act_fn.").String("name"));
    if (name.value_or("silu") != "silu") {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("ffn_config.ffn_act_fn.name '{}' is not supported; supported is silu",
                              ShortName(*name)),
                  "name");
    }
  }
  config.intermediate_size = moe.intermediate_size;
  for (LayerSpec& layer : config.spec.layers) {
    layer.mlp.intermediate_size = 0;
    layer.moe = moe;
  }
  return {};
}

// Reads rope_theta, which published files store among the attention settings.
Status ReadTheta(const JsonFields& fields, const JsonFields& own, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto theta, own.Number("rope_theta", 1, 1e12));
  if (!theta || fields.Given("rope_parameters") != nullptr || fields.Given("rope_theta") != nullptr)
    return {};
  config.rope.theta = *theta;
  DescribeRope(config.rope, config.rotary_dim, config.spec);
  return {};
}

Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const json::Value attention, ReadBlock(fields, "attn_config"));
  ASSIGN_OR_RETURN(const json::Value experts, ReadBlock(fields, "ffn_config"));
  RETURN_IF_ERROR(ReadAttention(JsonFields(attention, "attn_config."), config));
  RETURN_IF_ERROR(ReadTheta(fields, JsonFields(attention, "attn_config."), config));
  return ReadExperts(JsonFields(experts, "ffn_config."), config);
}

constexpr FieldAlias kAliases[] = {{"d_model", "hidden_size"},
                                   {"n_heads", "num_attention_heads"},
                                   {"n_layers", "num_hidden_layers"},
                                   {"max_seq_len", "max_position_embeddings"}};
constexpr ConfigDefaults kDefaults = {.vocab_size = 32000,
                                      .hidden_size = 2048,
                                      .intermediate_size = 3584,
                                      .num_hidden_layers = 24,
                                      .num_attention_heads = 16,
                                      .max_position_embeddings = 2048,
                                      .rms_norm_eps = 1e-5,
                                      .norm_eps_field = "",
                                      .has_layer_norms = true,
                                      .aliases = kAliases};

}  // namespace
}  // namespace dbrx

const ModelFamily kDbrx = {
    "DbrxForCausalLM",
    "dbrx",
    dbrx::kDefaults,
    dbrx::Read,
    {.models = "DBRX 132B-A36B",
     .operators = "layer norms; q, k and v in one tensor, with clamped values; experts with a "
                  "softmax router and normalized routing weights",
     .golden = "tiny-dbrx",
     .error = 6e-07}};

}  // namespace sluice
