// Decoders with learned position embeddings: GPT-2, GPTBigCode (StarCoder), GPT-Neo, OPT and
// BioGPT. Layer norms, MLPs without a gate, no RoPE.
#include <cmath>

#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace gpt2 {
namespace {

// Reads the fields that all these families share. `first`: row of position 0 in the table of
// position embeddings.
Status ReadCommon(const JsonFields& fields, int64_t first, ModelConfig& config) {
  RETURN_IF_ERROR(RefuseField(fields, "add_cross_attention", "cross-attention"));
  if (config.rope.scaling) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("rope_scaling is not supported by {}, whose positions are learnt",
                            config.architecture),
                "rope_scaling");
  }
  config.spec.norm.has_biases = true;
  config.spec.positions = {
      .module = "model.embed_positions", .first = first, .rows = config.max_position_embeddings};
  config.num_key_value_heads = config.num_attention_heads;
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.num_kv_heads = layer.attention.num_heads;
    layer.attention.rope = false;
    layer.attention.qkv_bias = layer.attention.output_bias = true;
    layer.mlp.gate_projection = "";
    layer.mlp.has_bias = true;
  }
  return {};
}

// Sets the module names of GPT-2 and GPT-Neo.
Status ReadNames(const JsonFields& fields, const char* width_field, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto width, fields.Integer(width_field, 1, kMaxConfigWidth));
  config.intermediate_size = width.value_or(4 * config.hidden_size);
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention_norms.before = "ln_1";
    layer.mlp_norms.before = "ln_2";
    layer.attention.module = "attn";
    layer.attention.qkv_projection = "c_attn";
    layer.attention.output_projection = "c_proj";
    layer.mlp.up_projection = "c_fc";
    layer.mlp.down_projection = "c_proj";
    layer.mlp.intermediate_size = config.intermediate_size;
  }
  return {};
}

// Returns the softmax scale: 1 if scores are not scaled, else nullopt (the default).
Result<std::optional<float>> ReadUnscaled(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto scales, fields.Bool("scale_attn_weights"));
  return scales.value_or(true) ? std::nullopt : std::optional<float>(1.0F);
}

// Source: transformers' GPT2Config, GPT2Attention and GPT2Block.
Status ReadGpt2(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadCommon(fields, 0, config));
  RETURN_IF_ERROR(ReadNames(fields, "n_inner", config));
  ASSIGN_OR_RETURN(const auto scale, ReadUnscaled(fields));
  ASSIGN_OR_RETURN(const auto by_layer, fields.Bool("scale_attn_by_inverse_layer_idx"));
  config.spec.has_transposed_tensors = true;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    AttentionSpec& attention = config.spec.layers[i].attention;
    attention.scale = scale;
    if (by_layer.value_or(false))
      attention.scale = attention.softmax_scale() / static_cast<float>(i + 1);
  }
  return {};
}

// Source: transformers' GPTBigCodeConfig and GPTBigCodeAttention.
Status ReadBigCode(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadCommon(fields, 0, config));
  RETURN_IF_ERROR(ReadNames(fields, "n_inner", config));
  ASSIGN_OR_RETURN(const auto scale, ReadUnscaled(fields));
  ASSIGN_OR_RETURN(const auto multi_query, fields.Bool("multi_query"));
  const bool shares_keys = multi_query.value_or(true);
  if (shares_keys) config.num_key_value_heads = 1;
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.scale = scale;
    layer.attention.num_kv_heads = static_cast<int>(config.num_key_value_heads);
    layer.attention.qkv_by_kv_head = !shares_keys;
  }
  return {};
}

// Returns whether each layer has a window, from attention_layers or attention_types: [[[kind, ...],
// times], ...].
Result<std::vector<bool>> ReadLocalLayers(const JsonFields& fields, const ModelConfig& config) {
  constexpr const char *kLayers = "attention_layers", *kTypes = "attention_types";
  const auto count = static_cast<size_t>(config.num_hidden_layers);
  ASSIGN_OR_RETURN(const auto layers, fields.Strings(kLayers));
  ASSIGN_OR_RETURN(const json::Value::Array* types, fields.Array(kTypes));
  std::vector<std::string> kinds;
  const auto bad = [&](const char* field) {
    return fields.Bad(field, fmt::format("a kind, global or local, for each of {} layers", count),
                      *fields.Given(field));
  };
  if (layers) {
    kinds = *layers;
  } else if (types != nullptr) {
    for (const json::Value& entry : *types) {
      const bool is_pair = entry.is_array() && entry.as_array().size() == 2 &&
                           entry.as_array()[0].is_array() && entry.as_array()[1].is_integer();
      if (!is_pair) return bad(kTypes);
      const int64_t times = entry.as_array()[1].as_integer();
      if (times < 0 || times > kMaxConfigLayers) return bad(kTypes);
      for (int64_t i = 0; i < times && kinds.size() <= count; ++i) {
        for (const json::Value& kind : entry.as_array()[0].as_array()) {
          if (!kind.is_string()) return bad(kTypes);
          kinds.push_back(kind.as_string());
        }
      }
    }
  } else {
    for (size_t i = 0; i < count; ++i) kinds.emplace_back(i % 2 == 0 ? "global" : "local");
  }
  const char* const field = layers ? kLayers : kTypes;
  if (kinds.size() != count) return bad(field);
  std::vector<bool> is_local;
  for (const std::string& kind : kinds) {
    if (kind != "global" && kind != "local") return bad(field);
    is_local.push_back(kind == "local");
  }
  return is_local;
}

// Source: transformers' GPTNeoConfig, GPTNeoSelfAttention and GPTNeoBlock.
Status ReadGptNeo(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadCommon(fields, 0, config));
  RETURN_IF_ERROR(ReadNames(fields, "intermediate_size", config));
  ASSIGN_OR_RETURN(const std::vector<bool> is_local, ReadLocalLayers(fields, config));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("window_size", 1, kMaxConfigPositions));
  for (size_t i = 0; i < is_local.size(); ++i) {
    AttentionSpec& attention = config.spec.layers[i].attention;
    attention.module = "attn.attention";
    attention.qkv_projection = "";
    attention.output_projection = "out_proj";
    attention.qkv_bias = false;
    attention.scale = 1.0F;
    if (is_local[i]) attention.span.window = static_cast<int32_t>(window.value_or(256));
  }
  return {};
}

// Reads the common fields of OPT and BioGPT, and sets their module names. Their tables of position
// embeddings have two rows before the row of position 0.
Status ReadFairseq(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadCommon(fields, /*first=*/2, config));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention_norms.before = "self_attn_layer_norm";
    layer.mlp_norms.before = "final_layer_norm";
    layer.attention.output_projection = "out_proj";
    layer.mlp.module = "";
    layer.mlp.up_projection = "fc1";
    layer.mlp.down_projection = "fc2";
  }
  return {};
}

// Source: transformers' OPTConfig, OPTDecoder and OPTDecoderLayer.
Status ReadOpt(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFairseq(fields, config));
  RETURN_IF_ERROR(RefuseField(fields, "_remove_final_layer_norm", "rows without a last norm"));
  ASSIGN_OR_RETURN(const auto norm_before, fields.Bool("do_layer_norm_before"));
  if (!norm_before.value_or(true)) {
    return Fail(ErrorCode::kUnsupported,
                "do_layer_norm_before false is not supported: norms after the residual sum",
                "do_layer_norm_before");
  }
  ASSIGN_OR_RETURN(const auto width, fields.Integer("word_embed_proj_dim", 1, kMaxConfigWidth));
  if (width.value_or(config.hidden_size) != config.hidden_size) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("word_embed_proj_dim {} is not supported; supported is hidden_size {}",
                            *width, config.hidden_size),
                "word_embed_proj_dim");
  }
  ASSIGN_OR_RETURN(const auto has_bias, fields.Bool("enable_bias"));
  ASSIGN_OR_RETURN(const auto has_weights, fields.Bool("layer_norm_elementwise_affine"));
  config.spec.norm.has_weights = config.spec.norm.has_biases = has_weights.value_or(true);
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qkv_bias = layer.attention.output_bias = layer.mlp.has_bias =
        has_bias.value_or(true);
  }
  return {};
}

// Source: transformers' BioGptConfig, BioGptModel and BioGptDecoderLayer.
Status ReadBioGpt(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFairseq(fields, config));
  ASSIGN_OR_RETURN(const auto scales, fields.Bool("scale_embedding"));
  if (scales.value_or(true))
    config.spec.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  return {};
}

constexpr FieldAlias kGpt2Aliases[] = {{"n_embd", "hidden_size"},
                                       {"n_head", "num_attention_heads"},
                                       {"n_layer", "num_hidden_layers"},
                                       {"n_positions", "max_position_embeddings"},
                                       {"activation_function", "hidden_act"}};
constexpr ConfigDefaults kGpt2Defaults = {.vocab_size = 50257,
                                          .hidden_size = 768,
                                          .intermediate_size = 3072,
                                          .num_hidden_layers = 12,
                                          .num_attention_heads = 12,
                                          .max_position_embeddings = 1024,
                                          .rms_norm_eps = 1e-5,
                                          .norm_eps_field = "layer_norm_epsilon",
                                          .has_layer_norms = true,
                                          .bos_token_id = 50256,
                                          .eos_token_id = 50256,
                                          .tie_word_embeddings = true,
                                          .activation = Activation::kGeluTanh,
                                          .positions_are_scaled = true,
                                          .aliases = kGpt2Aliases};

constexpr FieldAlias kGptNeoAliases[] = {{"num_heads", "num_attention_heads"},
                                         {"num_layers", "num_hidden_layers"},
                                         {"activation_function", "hidden_act"}};
constexpr ConfigDefaults kGptNeoDefaults = {.vocab_size = 50257,
                                            .hidden_size = 2048,
                                            .intermediate_size = 8192,
                                            .num_hidden_layers = 24,
                                            .num_attention_heads = 16,
                                            .max_position_embeddings = 2048,
                                            .rms_norm_eps = 1e-5,
                                            .norm_eps_field = "layer_norm_epsilon",
                                            .has_layer_norms = true,
                                            .bos_token_id = 50256,
                                            .eos_token_id = 50256,
                                            .tie_word_embeddings = true,
                                            .activation = Activation::kGeluTanh,
                                            .positions_are_scaled = true,
                                            .aliases = kGptNeoAliases};

constexpr FieldAlias kOptAliases[] = {{"ffn_dim", "intermediate_size"},
                                      {"activation_function", "hidden_act"}};
// OPT and BioGPT have no field for the norms' epsilon.
constexpr ConfigDefaults kOptDefaults = {.vocab_size = 50272,
                                         .hidden_size = 768,
                                         .intermediate_size = 3072,
                                         .num_hidden_layers = 12,
                                         .num_attention_heads = 12,
                                         .max_position_embeddings = 2048,
                                         .rms_norm_eps = 1e-5,
                                         .norm_eps_field = "",
                                         .has_layer_norms = true,
                                         .bos_token_id = 2,
                                         .eos_token_id = 2,
                                         .tie_word_embeddings = true,
                                         .activation = Activation::kRelu,
                                         .positions_are_scaled = true,
                                         .aliases = kOptAliases};
constexpr ConfigDefaults kBioGptDefaults = {.vocab_size = 42384,
                                            .hidden_size = 1024,
                                            .intermediate_size = 4096,
                                            .num_hidden_layers = 24,
                                            .num_attention_heads = 16,
                                            .max_position_embeddings = 1024,
                                            .rms_norm_eps = 1e-5,
                                            .norm_eps_field = "",
                                            .has_layer_norms = true,
                                            .bos_token_id = 0,
                                            .eos_token_id = 2,
                                            .tie_word_embeddings = true,
                                            .activation = Activation::kGelu,
                                            .positions_are_scaled = true};

}  // namespace
}  // namespace gpt2

const ModelFamily kGpt2 = {"GPT2LMHeadModel",
                           "gpt2",
                           gpt2::kGpt2Defaults,
                           gpt2::ReadGpt2,
                           {.models = "GPT-2 124M to 1.5B, GPT-SW3",
                            .operators = "learned positions; layer norms; biases; q, k and v in "
                                         "one tensor; an MLP without a gate, GELU",
                            .golden = "tiny-gpt2",
                            .error = 5.6e-07},
                           nullptr,
                           "gpt-sw3"};
const ModelFamily kGptBigCode = {"GPTBigCodeForCausalLM",
                                 "gpt_bigcode",
                                 gpt2::kGpt2Defaults,
                                 gpt2::ReadBigCode,
                                 {.models = "StarCoder 15B, SantaCoder, Granite Code 20B, 34B",
                                  .operators = "like GPT-2, with one head of keys and values",
                                  .golden = "tiny-gpt-bigcode, tiny-gpt-bigcode-heads",
                                  .error = 5.1e-07}};
const ModelFamily kGptNeo = {
    "GPTNeoForCausalLM",
    "gpt_neo",
    gpt2::kGptNeoDefaults,
    gpt2::ReadGptNeo,
    {.models = "GPT-Neo 125M to 2.7B, TinyStories",
     .operators = "like GPT-2; unscaled scores; a window in every second layer",
     .golden = "tiny-gpt-neo",
     .error = 8e-07}};
const ModelFamily kOpt = {
    "OPTForCausalLM",
    "opt",
    gpt2::kOptDefaults,
    gpt2::ReadOpt,
    {.models = "OPT 125M, 1.3B to 66B, Galactica",
     .operators = "learned positions; layer norms; biases; an MLP without a gate, ReLU",
     .golden = "tiny-opt",
     .error = 4.7e-07}};
const ModelFamily kBioGpt = {
    "BioGptForCausalLM",
    "biogpt",
    gpt2::kBioGptDefaults,
    gpt2::ReadBioGpt,
    {.models = "BioGPT, BioGPT-Large",
     .operators =
         "learned positions; scaled embeddings; layer norms; biases; an MLP without a gate, GELU",
     .golden = "tiny-biogpt",
     .error = 4.8e-07}};

}  // namespace sluice
