// GPT-NeoX and Pythia, Falcon, Persimmon, Phi 1 to 2 and StableLM: layer norms, in most models
// attention and MLP in parallel, RoPE on a part of each head, MLPs without a gate.
#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace gpt_neox {
namespace {

// Sets the module names of GPT-NeoX and Falcon. q, k and v are in one tensor, head by head.
void NameModules(const char* attention, bool has_bias, LayerSpec& layer) {
  layer.attention.module = attention;
  layer.attention.qkv_projection = "query_key_value";
  layer.attention.qkv_by_kv_head = true;
  layer.attention.output_projection = "dense";
  layer.attention.qkv_bias = layer.attention.output_bias = has_bias;
  layer.mlp.gate_projection = "";
  layer.mlp.up_projection = "dense_h_to_4h";
  layer.mlp.down_projection = "dense_4h_to_h";
  layer.mlp.has_bias = has_bias;
}

// Source: transformers' GPTNeoXConfig, GPTNeoXAttention and GPTNeoXLayer.
Status ReadGptNeoX(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  ASSIGN_OR_RETURN(const auto is_parallel, fields.Bool("use_parallel_residual"));
  config.spec.norm.has_biases = true;
  config.num_key_value_heads = config.num_attention_heads;
  for (LayerSpec& layer : config.spec.layers) {
    NameModules("attention", /*has_bias=*/config.attention_bias, layer);
    layer.attention.num_kv_heads = layer.attention.num_heads;
    layer.mlp.has_bias = true;
    layer.is_parallel = is_parallel.value_or(true);
  }
  return {};
}

// Returns the number of KV heads, which depends on the generation of Falcon.
Result<int64_t> ReadFalconKeys(const JsonFields& fields, bool is_new, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto multi_query, fields.Bool("multi_query"));
  ASSIGN_OR_RETURN(const auto given, fields.Integer("num_kv_heads", 1, config.num_attention_heads));
  if (!is_new && multi_query.value_or(true)) return 1;
  const int64_t heads = given.value_or(config.num_attention_heads);
  if (config.num_attention_heads % heads == 0) return heads;
  return fields.Bad("num_kv_heads",
                    fmt::format("a divisor of num_attention_heads {}", config.num_attention_heads),
                    json::Value(heads));
}

// Source: transformers' FalconConfig, FalconAttention and FalconDecoderLayer.
Status ReadFalcon(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(RefuseField(fields, "alibi", "ALiBi position biases"));
  ASSIGN_OR_RETURN(const auto new_decoder, fields.Bool("new_decoder_architecture"));
  ASSIGN_OR_RETURN(const auto parallel, fields.Bool("parallel_attn"));
  ASSIGN_OR_RETURN(const auto norms, fields.Integer("num_ln_in_parallel_attn", 1, 2));
  ASSIGN_OR_RETURN(const auto bias, fields.Bool("bias"));
  ASSIGN_OR_RETURN(const auto width, fields.Integer("ffn_hidden_size", 1, kMaxConfigWidth));
  const bool is_new = new_decoder.value_or(false), is_parallel = parallel.value_or(true);
  if (is_new && !is_parallel) {
    return Fail(ErrorCode::kUnsupported,
                "parallel_attn false is not supported with new_decoder_architecture true",
                "parallel_attn");
  }
  const bool has_two_norms = norms.value_or(is_new ? 2 : 1) == 2;
  if (has_two_norms && !is_new) {
    return Fail(ErrorCode::kUnsupported,
                "num_ln_in_parallel_attn 2 is only supported with new_decoder_architecture true",
                "num_ln_in_parallel_attn");
  }
  ASSIGN_OR_RETURN(config.num_key_value_heads, ReadFalconKeys(fields, is_new, config));
  config.intermediate_size = width.value_or(4 * config.hidden_size);
  config.spec.norm.has_biases = true;
  for (LayerSpec& layer : config.spec.layers) {
    NameModules("self_attention", bias.value_or(false), layer);
    layer.attention.num_kv_heads = static_cast<int>(config.num_key_value_heads);
    layer.mlp.intermediate_size = config.intermediate_size;
    layer.is_parallel = is_parallel;
    if (!is_parallel) continue;
    if (has_two_norms) layer.attention_norms.before = "ln_attn";
    layer.mlp_norms.before = has_two_norms ? "ln_mlp" : layer.attention_norms.before;
  }
  return {};
}

// Sets per-head layer norms: all heads of q share weights, and all heads of k share weights.
void NormHeads(AttentionSpec& attention) {
  attention.qk_norm = QkNorm::kLayerBeforeRope;
  attention.q_norm = "q_layernorm";
  attention.k_norm = "k_layernorm";
  attention.qk_norm_biases = true;
}

// Source: transformers' PersimmonConfig, PersimmonAttention and PersimmonDecoderLayer.
Status ReadPersimmon(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  ASSIGN_OR_RETURN(const auto norms_heads, fields.Bool("qk_layernorm"));
  config.spec.norm.has_biases = true;
  config.num_key_value_heads = config.num_attention_heads;
  for (LayerSpec& layer : config.spec.layers) {
    NameModules("self_attn", /*has_bias=*/true, layer);
    if (norms_heads.value_or(true)) NormHeads(layer.attention);
    layer.attention.num_kv_heads = layer.attention.num_heads;
  }
  return {};
}

// Source: transformers' PhiConfig, PhiAttention and PhiDecoderLayer.
Status ReadPhi(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  ASSIGN_OR_RETURN(const auto norms_heads, fields.Bool("qk_layernorm"));
  config.spec.norm.has_biases = true;
  if (config.spec.tied_head) {
    return Fail(ErrorCode::kUnsupported,
                "tie_word_embeddings true is not supported: the head has a bias",
                "tie_word_embeddings");
  }
  config.spec.head_bias = true;
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.output_projection = "dense";
    if (norms_heads.value_or(false)) NormHeads(layer.attention);
    layer.attention.qkv_bias = layer.attention.output_bias = true;
    layer.mlp.gate_projection = "";
    layer.mlp.up_projection = "fc1";
    layer.mlp.down_projection = "fc2";
    layer.mlp.has_bias = true;
    layer.is_parallel = true;
    layer.mlp_norms.before = layer.attention_norms.before;
  }
  return {};
}

// Source: transformers' StableLmConfig and StableLmDecoderLayer.
Status ReadStableLm(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  ASSIGN_OR_RETURN(const auto norms_heads, fields.Bool("qk_layernorm"));
  ASSIGN_OR_RETURN(const auto is_parallel, fields.Bool("use_parallel_residual"));
  ASSIGN_OR_RETURN(const auto bias, fields.Bool("use_qkv_bias"));
  config.spec.norm.has_biases = true;
  for (LayerSpec& layer : config.spec.layers) {
    if (norms_heads.value_or(false)) {
      layer.attention.qk_norm = QkNorm::kLayerBeforeRope;
      layer.attention.q_norm = "q_layernorm.norms";
      layer.attention.k_norm = "k_layernorm.norms";
      layer.attention.qk_norm_of_heads = true;
    }
    layer.attention.qkv_bias = bias.value_or(false);
    layer.attention.output_bias = false;
    layer.mlp.has_bias = false;
    layer.is_parallel = is_parallel.value_or(false);
    if (layer.is_parallel) layer.mlp_norms.before = layer.attention_norms.before;
  }
  return {};
}

constexpr FieldAlias kNeoXAliases[] = {{"rotary_pct", "partial_rotary_factor"},
                                       {"rotary_emb_base", "rope_theta"}};
constexpr ConfigDefaults kNeoXDefaults = {.vocab_size = 50432,
                                          .hidden_size = 6144,
                                          .intermediate_size = 24576,
                                          .num_hidden_layers = 44,
                                          .num_attention_heads = 64,
                                          .max_position_embeddings = 2048,
                                          .rms_norm_eps = 1e-5,
                                          .norm_eps_field = "layer_norm_eps",
                                          .has_layer_norms = true,
                                          .partial_rotary_factor = 0.25,
                                          .bos_token_id = 0,
                                          .eos_token_id = 2,
                                          .attention_bias = true,
                                          .activation = Activation::kGelu,
                                          .aliases = kNeoXAliases};
constexpr FieldAlias kFalconAliases[] = {{"n_embed", "hidden_size"}, {"activation", "hidden_act"}};
constexpr ConfigDefaults kFalconDefaults = {.vocab_size = 65024,
                                            .hidden_size = 4544,
                                            .intermediate_size = 18176,
                                            .num_hidden_layers = 32,
                                            .num_attention_heads = 71,
                                            .max_position_embeddings = 2048,
                                            .rms_norm_eps = 1e-5,
                                            .norm_eps_field = "layer_norm_epsilon",
                                            .has_layer_norms = true,
                                            .bos_token_id = 11,
                                            .eos_token_id = 11,
                                            .tie_word_embeddings = true,
                                            .activation = Activation::kGelu,
                                            .aliases = kFalconAliases};
constexpr ConfigDefaults kPhiDefaults = {.vocab_size = 51200,
                                         .hidden_size = 2048,
                                         .intermediate_size = 8192,
                                         .num_hidden_layers = 24,
                                         .num_attention_heads = 32,
                                         .max_position_embeddings = 2048,
                                         .rms_norm_eps = 1e-5,
                                         .norm_eps_field = "layer_norm_eps",
                                         .has_layer_norms = true,
                                         .partial_rotary_factor = 0.5,
                                         .bos_token_id = 1,
                                         .eos_token_id = 2,
                                         .activation = Activation::kGeluTanh};
constexpr ConfigDefaults kPersimmonDefaults = {.vocab_size = 262144,
                                               .hidden_size = 4096,
                                               .intermediate_size = 16384,
                                               .num_hidden_layers = 36,
                                               .num_attention_heads = 64,
                                               .max_position_embeddings = 16384,
                                               .rms_norm_eps = 1e-5,
                                               .norm_eps_field = "layer_norm_eps",
                                               .has_layer_norms = true,
                                               .partial_rotary_factor = 0.5,
                                               .bos_token_id = 1,
                                               .eos_token_id = 2,
                                               .activation = Activation::kRelu2};
constexpr FieldAlias kStableLmAliases[] = {{"rope_pct", "partial_rotary_factor"},
                                           {"norm_eps", "layer_norm_eps"}};
constexpr ConfigDefaults kStableLmDefaults = {.vocab_size = 50304,
                                              .hidden_size = 2560,
                                              .intermediate_size = 6912,
                                              .num_hidden_layers = 32,
                                              .num_attention_heads = 32,
                                              .kv_heads = 32,
                                              .max_position_embeddings = 4096,
                                              .rms_norm_eps = 1e-5,
                                              .norm_eps_field = "layer_norm_eps",
                                              .has_layer_norms = true,
                                              .partial_rotary_factor = 0.25,
                                              .bos_token_id = 0,
                                              .eos_token_id = 0,
                                              .aliases = kStableLmAliases};

}  // namespace
}  // namespace gpt_neox

const ModelFamily kGptNeoX = {
    "GPTNeoXForCausalLM",
    "gpt_neox",
    gpt_neox::kNeoXDefaults,
    gpt_neox::ReadGptNeoX,
    {.models = "GPT-NeoX 20B, Pythia",
     .operators = "layer norms; attention and MLP in parallel; q, k and v in one tensor; rope on a "
                  "part of a head; an MLP without a gate, GELU",
     .golden = "tiny-gpt-neox",
     .error = 5.9e-07}};
const ModelFamily kFalcon = {"FalconForCausalLM",
                             "falcon",
                             gpt_neox::kFalconDefaults,
                             gpt_neox::ReadFalcon,
                             {.models = "Falcon 7B, 40B, 180B, Falcon 2",
                              .operators = "layer norms; attention and MLP in parallel; q, k and v "
                                           "in one tensor; an MLP without a gate, GELU",
                              .golden = "tiny-falcon, tiny-falcon-old",
                              .error = 6.5e-07}};
const ModelFamily kPersimmon = {
    "PersimmonForCausalLM",
    "persimmon",
    gpt_neox::kPersimmonDefaults,
    gpt_neox::ReadPersimmon,
    {.models = "Persimmon 8B",
     .operators = "layer norms, also per head; q, k and v in one tensor; rope on half of a head; "
                  "an MLP without a gate, squared ReLU",
     .golden = "tiny-persimmon",
     .error = 6.3e-07}};
const ModelFamily kPhi = {
    "PhiForCausalLM",
    "phi",
    gpt_neox::kPhiDefaults,
    gpt_neox::ReadPhi,
    {.models = "Phi-1, 1.5, 2",
     .operators = "layer norms; attention and MLP in parallel; biases, also of the output head; "
                  "rope on a part of a head; an MLP without a gate, GELU",
     .golden = "tiny-phi, tiny-phi-heads",
     .error = 4.9e-07}};
const ModelFamily kStableLm = {
    "StableLmForCausalLM",
    "stablelm",
    gpt_neox::kStableLmDefaults,
    gpt_neox::ReadStableLm,
    {.models = "StableLM 3B, StableLM 2 1.6B, StableCode",
     .operators =
         "layer norms; rope on a part of a head; attention and MLP in parallel, if configured",
     .golden = "tiny-stablelm, tiny-stablelm-parallel, tiny-stablelm-heads",
     .error = 6.5e-07},
    nullptr,
    "stablelm_epoch",
    "StableLMEpochForCausalLM"};

}  // namespace sluice
