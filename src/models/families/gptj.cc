// GPT-J and CodeGen: layer norms, attention and MLP in parallel, interleaved RoPE on the first
// elements of each head, MLPs without a gate, a head with a bias.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace gptj {
namespace {

// Source: transformers' GPTJConfig, GPTJAttention and GPTJBlock.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(RefuseField(fields, "add_cross_attention", "cross-attention"));
  ASSIGN_OR_RETURN(const auto width, fields.Integer("n_inner", 1, kMaxConfigWidth));
  config.intermediate_size = width.value_or(4 * config.hidden_size);
  if (config.spec.tied_head) {
    return Fail(ErrorCode::kUnsupported,
                "tie_word_embeddings true is not supported: the head has a bias",
                "tie_word_embeddings");
  }
  config.spec.norm.has_biases = true;
  config.spec.head_bias = true;
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention_norms.before = layer.mlp_norms.before = "ln_1";
    layer.attention.module = "attn";
    layer.attention.output_projection = "out_proj";
    layer.attention.qkv_bias = layer.attention.output_bias = false;
    layer.attention.rope_style = kernels::RopeStyle::kInterleaved;
    layer.mlp.gate_projection = "";
    layer.mlp.up_projection = "fc_in";
    layer.mlp.down_projection = "fc_out";
    layer.mlp.has_bias = true;
    layer.mlp.intermediate_size = config.intermediate_size;
    layer.is_parallel = true;
  }
  return {};
}

// Source: transformers' CodeGenAttention.
Status ReadCodeGen(const JsonFields& fields, ModelConfig& config) {
  constexpr int kParts = 4;
  RETURN_IF_ERROR(Read(fields, config));
  if (config.num_attention_heads % kParts != 0) {
    return fields.Bad("n_head",
                      "a multiple of 4, because q, k and v are stored in four parts, each with a "
                      "quarter of the heads",
                      json::Value(config.num_attention_heads));
  }
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qkv_projection = "qkv_proj";
    layer.attention.qkv_parts = kParts;
  }
  return {};
}

constexpr FieldAlias kAliases[] = {{"n_embd", "hidden_size"},
                                   {"n_head", "num_attention_heads"},
                                   {"n_layer", "num_hidden_layers"},
                                   {"n_positions", "max_position_embeddings"},
                                   {"activation_function", "hidden_act"}};
constexpr ConfigDefaults kDefaults = {.vocab_size = 50400,
                                      .hidden_size = 4096,
                                      .intermediate_size = 16384,
                                      .num_hidden_layers = 28,
                                      .num_attention_heads = 16,
                                      .max_position_embeddings = 2048,
                                      .rms_norm_eps = 1e-5,
                                      .norm_eps_field = "layer_norm_epsilon",
                                      .has_layer_norms = true,
                                      .partial_rotary_factor = 0.25,
                                      .takes_rotary_dim = true,
                                      .default_rotary_dim = 64,
                                      .bos_token_id = 50256,
                                      .eos_token_id = 50256,
                                      .activation = Activation::kGeluTanh,
                                      .aliases = kAliases};

}  // namespace
}  // namespace gptj

const ModelFamily kGptJ = {
    "GPTJForCausalLM",
    "gptj",
    gptj::kDefaults,
    gptj::Read,
    {.models = "GPT-J 6B",
     .operators = "layer norms; attention and MLP in parallel; interleaved rope on a part of a "
                  "head; an MLP without a gate, GELU; a bias of the output head",
     .golden = "tiny-gptj",
     .error = 4.8e-07}};
const ModelFamily kCodeGen = {"CodeGenForCausalLM",
                              "codegen",
                              gptj::kDefaults,
                              gptj::ReadCodeGen,
                              {.models = "CodeGen 350M to 16B, CodeGen2",
                               .operators = "like GPT-J; q, v and k in one tensor, in four parts",
                               .golden = "tiny-codegen",
                               .error = 5.8e-07}};

}  // namespace sluice
