#include "checkpoint/mistral_format.h"

#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json_fields.h"
#include "base/json_file.h"
#include "base/list_folder.h"
#include "checkpoint/checkpoint.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxNumberOf = int64_t{1} << 31;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kDefaultPositions = 128'000;
constexpr double kMaxNumber = 1e12;

tl::unexpected<Error> Another(std::string_view key, std::string_view why) {
  return Fail(ErrorCode::kUnsupported, fmt::format("{} is not supported: {}", key, why),
              std::string(key));
}

// Refuses models that are not supported decoders.
Status RefuseOthers(const JsonFields& params) {
  ASSIGN_OR_RETURN(const auto type, params.String("model_type"));
  if (type.value_or("transformer") != "transformer")
    return Another("model_type", fmt::format("expected transformer, found {}", ShortName(*type)));
  ASSIGN_OR_RETURN(const json::Value* multimodal, params.Object("multimodal"));
  if (multimodal != nullptr && multimodal->Find("whisper_model_args") != nullptr)
    return Another("multimodal.whisper_model_args", "an audio tower");
  for (const char* key : {"ada_rms_norm_t_cond", "use_biases", "use_qk_norm", "attention_sinks"}) {
    ASSIGN_OR_RETURN(const auto is_set, params.Bool(key));
    if (is_set.value_or(false)) return Another(key, "expected false or no such key, found true");
  }
  ASSIGN_OR_RETURN(const auto causal, params.Bool("causal"));
  if (!causal.value_or(true)) return Another("causal", "expected true, found false");
  return {};
}

// Copies numbers to other names. Numbers without a default are required.
class Copier {
 public:
  Copier(const JsonFields& from, json::Value& to) : from_(from), to_(to) {}

  Status Count(const char* name, const char* own, std::optional<int64_t> absent = std::nullopt) {
    ASSIGN_OR_RETURN(const auto value, from_.Integer(name, 0, kMaxNumberOf));
    if (!value && !absent) return from_.Missing(name);
    to_.Set(own, value.value_or(absent.value_or(0)));
    return {};
  }
  Status Number(const char* name, const char* own, double absent) {
    ASSIGN_OR_RETURN(const auto value, from_.Number(name, 0, kMaxNumber));
    to_.Set(own, value.value_or(absent));
    return {};
  }

 private:
  const JsonFields& from_;
  json::Value& to_;
};

Status CopyShape(const JsonFields& params, json::Value& config) {
  Copier copy(params, config);
  RETURN_IF_ERROR(copy.Count("dim", "hidden_size"));
  RETURN_IF_ERROR(copy.Count("n_layers", "num_hidden_layers"));
  RETURN_IF_ERROR(copy.Count("n_heads", "num_attention_heads"));
  RETURN_IF_ERROR(copy.Count("n_kv_heads", "num_key_value_heads",
                             config.Find("num_attention_heads")->as_integer()));
  RETURN_IF_ERROR(copy.Count("hidden_dim", "intermediate_size"));
  RETURN_IF_ERROR(copy.Count("vocab_size", "vocab_size"));
  RETURN_IF_ERROR(copy.Number("norm_eps", "rms_norm_eps", 1e-5));
  ASSIGN_OR_RETURN(const auto longest, params.Integer("max_seq_len", 1, kMaxNumberOf));
  RETURN_IF_ERROR(copy.Count("max_position_embeddings", "max_position_embeddings",
                             longest.value_or(kDefaultPositions)));
  ASSIGN_OR_RETURN(const auto activation, params.String("activation"));
  config.Set("hidden_act", activation.value_or("silu"));
  ASSIGN_OR_RETURN(const auto is_tied, params.Bool("tied_embeddings"));
  config.Set("tie_word_embeddings", is_tied.value_or(false));
  config.Set("bos_token_id", int64_t{1});
  config.Set("eos_token_id", int64_t{2});
  config.Set("torch_dtype", "bfloat16");
  config.Set("rope_interleave", true);
  return {};
}

// `is_latent`: attention scores are also scaled by YaRN's magnitude, as in DeepSeek's models. If
// apply_scale is false, neither rotated elements nor scores are scaled.
Result<json::Value> RopeOf(const JsonFields& params, bool is_latent) {
  json::Value rope{json::Value::Object{}};
  ASSIGN_OR_RETURN(const auto theta, params.Number("rope_theta", 1, kMaxNumber));
  rope.Set("rope_theta", theta.value_or(10000.0));
  ASSIGN_OR_RETURN(const json::Value* yarn, params.Object("yarn"));
  ASSIGN_OR_RETURN(const json::Value* scaling, params.Object("llama_4_scaling"));
  constexpr const char* kOriginal = "original_max_position_embeddings";
  std::optional<int64_t> original;
  rope.Set("rope_type", yarn == nullptr ? "default" : "yarn");
  if (yarn != nullptr) {
    const JsonFields fields(*yarn, "yarn.");
    Copier copy(fields, rope);
    ASSIGN_OR_RETURN(original, fields.RequiredInteger(kOriginal, 1, kMaxNumberOf));
    ASSIGN_OR_RETURN(const auto factor, fields.Number("factor", 1, 1e6));
    if (!factor) return fields.Missing("factor");
    rope.Set("factor", *factor);
    RETURN_IF_ERROR(copy.Number("beta", "beta_fast", 32));
    RETURN_IF_ERROR(copy.Number("alpha", "beta_slow", 1));
    ASSIGN_OR_RETURN(const auto scales, fields.Bool("apply_scale"));
    if (!scales.value_or(true)) {
      rope.Set("attention_factor", 1.0);
    } else if (is_latent) {
      rope.Set("mscale", 1.0);
      rope.Set("mscale_all_dim", 1.0);
    }
  }
  if (scaling != nullptr) {
    const JsonFields fields(*scaling, "llama_4_scaling.");
    ASSIGN_OR_RETURN(const int64_t from, fields.RequiredInteger(kOriginal, 1, kMaxNumberOf));
    if (original && *original != from) {
      return fields.Bad(kOriginal, fmt::format("yarn.{} {}", kOriginal, *original),
                        json::Value(from));
    }
    original = from;
    ASSIGN_OR_RETURN(const auto beta, fields.Number("beta", 0, 1e3));
    if (!beta) return fields.Missing("beta");
    rope.Set("llama_4_scaling_beta", *beta);
  }
  if (original) rope.Set(kOriginal, *original);
  return rope;
}

// sliding_window is a number, or a list of numbers and nulls that is repeated over the layers.
Status CopyWindows(const JsonFields& params, json::Value& config) {
  const json::Value* given = params.Given("sliding_window");
  config.Set("sliding_window", json::Value());
  if (given == nullptr) return {};
  const int64_t layers = config.Find("num_hidden_layers")->as_integer();
  if (!given->is_array()) {
    ASSIGN_OR_RETURN(const auto window, params.Integer("sliding_window", 1, kMaxNumberOf));
    config.Set("sliding_window", *window);
    return {};
  }
  const json::Value::Array& pattern = given->as_array();
  const auto bad = [&] {
    return params.Bad("sliding_window",
                      fmt::format("a number, or a list of one number and null whose length divides "
                                  "n_layers {}",
                                  layers),
                      *given);
  };
  if (pattern.empty() || layers > kMaxLayers || layers % std::ssize(pattern) != 0) return bad();
  std::optional<int64_t> window;
  for (const json::Value& value : pattern) {
    if (value.is_null()) continue;
    if (!value.is_integer() || value.as_integer() < 1) return bad();
    if (window.value_or(value.as_integer()) != value.as_integer()) return bad();
    window = value.as_integer();
  }
  if (!window) return {};
  json::Value::Array types;
  for (int64_t i = 0; i < layers; ++i) {
    const bool slides = !pattern[static_cast<size_t>(i % std::ssize(pattern))].is_null();
    types.emplace_back(slides ? "sliding_attention" : "full_attention");
  }
  config.Set("layer_types", json::Value(std::move(types)));
  config.Set("sliding_window", *window);
  return {};
}

// FP8 with a scale for each tensor, or compressed-tensors. The lists of modules in
// compressed-tensors use the names of Hugging Face's format.
Status CopyQuantization(const JsonFields& params, json::Value& config) {
  constexpr const char* kOwn = "quantization";
  constexpr const char* kOther = "quantization_config";
  ASSIGN_OR_RETURN(const json::Value* other, params.Object(kOther));
  if (other != nullptr) config.Set(kOther, *other);
  ASSIGN_OR_RETURN(const json::Value* own, params.Object(kOwn));
  if (own == nullptr || own->as_object().empty()) return {};
  const JsonFields fields(*own, "quantization.");
  ASSIGN_OR_RETURN(const auto method, fields.String("quant_method"));
  if (method) {
    json::Value block = *own;
    block.Set("quant_method", *method == "compressed_tensors" ? "compressed-tensors" : *method);
    config.Set(kOther, std::move(block));
    return {};
  }
  ASSIGN_OR_RETURN(const auto weights, fields.String("qformat_weight"));
  ASSIGN_OR_RETURN(const auto inputs, fields.String("qscheme_act"));
  if (weights.value_or("") != "fp8_e4m3")
    return Another("quantization.qformat_weight",
                   fmt::format("expected fp8_e4m3, found '{}'", ShortName(weights.value_or(""))));
  if (inputs.value_or("TENSOR") != "TENSOR" && *inputs != "NO_SCALES")
    return Another("quantization.qscheme_act",
                   fmt::format("expected TENSOR or NO_SCALES, found '{}'", ShortName(*inputs)));
  json::Value block{json::Value::Object{}};
  block.Set("quant_method", "fp8");
  block.Set("activation_scheme", inputs.value_or("TENSOR") == "TENSOR" ? "static" : "dynamic");
  // The output head is not quantized.
  block.Set("modules_to_not_convert", json::Value(json::Value::Array{json::Value("lm_head")}));
  config.Set(kOther, std::move(block));
  return {};
}

// Experts as in Mixtral.
Status CopyExperts(const JsonFields& moe, json::Value& config) {
  Copier copy(moe, config);
  RETURN_IF_ERROR(copy.Count("num_experts", "num_local_experts"));
  return copy.Count("num_experts_per_tok", "num_experts_per_tok");
}

// Latent attention, experts chosen by softmax, and shared experts; without `moe`, no layer has
// experts.
Status CopyLatent(const JsonFields& params, const json::Value* moe, json::Value& config) {
  Copier copy(params, config);
  config.Set("num_key_value_heads", config.Find("num_attention_heads")->as_integer());
  ASSIGN_OR_RETURN(const auto q_rank, params.Integer("q_lora_rank", 1, kMaxNumberOf));
  config.Set("q_lora_rank", q_rank ? json::Value(*q_rank) : json::Value());
  for (const char* name : {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"})
    RETURN_IF_ERROR(copy.Count(name, name));
  config.Set("norm_topk_prob", true);
  if (moe == nullptr) {
    config.Set("first_k_dense_replace", config.Find("num_hidden_layers")->as_integer());
    return {};
  }
  const JsonFields fields(*moe, "moe.");
  Copier experts(fields, config);
  RETURN_IF_ERROR(experts.Count("num_experts", "n_routed_experts"));
  RETURN_IF_ERROR(experts.Count("num_experts_per_tok", "num_experts_per_tok"));
  RETURN_IF_ERROR(experts.Count("expert_hidden_dim", "moe_intermediate_size"));
  RETURN_IF_ERROR(experts.Count("num_shared_experts", "n_shared_experts"));
  RETURN_IF_ERROR(experts.Count("first_k_dense_replace", "first_k_dense_replace", 0));
  RETURN_IF_ERROR(experts.Count("num_expert_groups", "n_group", 1));
  RETURN_IF_ERROR(experts.Count("num_expert_groups_per_tok", "topk_group", 1));
  RETURN_IF_ERROR(experts.Number("routed_scale", "routed_scaling_factor", 1));
  RETURN_IF_ERROR(experts.Count("route_every_n", "moe_layer_freq", 1));
  ASSIGN_OR_RETURN(const auto strategy, fields.String("renorm_strategy"));
  if (strategy.value_or("WEIGHTS") != "WEIGHTS")
    return Another("moe.renorm_strategy",
                   fmt::format("expected WEIGHTS, found '{}'", ShortName(*strategy)));
  ASSIGN_OR_RETURN(const auto has_bias, fields.Bool("use_load_balancing_bias"));
  if (has_bias.value_or(false))
    return Another("moe.use_load_balancing_bias", "expected false, found true");
  return {};
}

// Parts of names within a layer and their canonical names, longer parts first, because one part may
// contain another.
constexpr std::pair<std::string_view, std::string_view> kInLayer[] = {
    {"attention_norm.", "input_layernorm."},
    {"ffn_norm.", "post_attention_layernorm."},
    {"attention.wq.", "self_attn.q_proj."},
    {"attention.wk.", "self_attn.k_proj."},
    {"attention.wv.", "self_attn.v_proj."},
    {"attention.wo.", "self_attn.o_proj."},
    {"attention.q_fake_quantizer.qscale_act", "self_attn.q_scale"},
    {"attention.k_fake_quantizer.qscale_act", "self_attn.k_scale"},
    {"attention.v_fake_quantizer.qscale_act", "self_attn.v_scale"},
    {"attention.kv_fake_quantizer.qscale_act", "self_attn.kv_scale"},
    {"attention.wq_a.", "self_attn.q_a_proj."},
    {"attention.q_a_norm.", "self_attn.q_a_layernorm."},
    {"attention.wq_b.", "self_attn.q_b_proj."},
    {"attention.wkv_a_with_mqa.", "self_attn.kv_a_proj_with_mqa."},
    {"attention.kv_a_norm.", "self_attn.kv_a_layernorm."},
    {"attention.wkv_b.", "self_attn.kv_b_proj."},
    {"feed_forward.w1.", "mlp.gate_proj."},
    {"feed_forward.w2.", "mlp.down_proj."},
    {"feed_forward.w3.", "mlp.up_proj."},
    {"feed_forward.gate.", "block_sparse_moe.gate."},
    // w1, w2 and w3 of experts keep their names.
    {"feed_forward.experts.", "block_sparse_moe.experts."},
    {"block_sparse_moe.", "block_sparse_moe."},
    {"gate.", "mlp.gate."},
    {"shared_experts.w1.", "mlp.shared_experts.gate_proj."},
    {"shared_experts.w2.", "mlp.shared_experts.down_proj."},
    {"shared_experts.w3.", "mlp.shared_experts.up_proj."},
};

constexpr std::pair<std::string_view, std::string_view> kOutside[] = {
    {"tok_embeddings.", "model.embed_tokens."},
    {"norm.", "model.norm."},
    {"output.", "lm_head."},
};

constexpr std::pair<std::string_view, std::string_view> kScales[] = {
    {"qscale_act", "input_scale"},
    {"qscale_weight", "weight_scale"},
};

// For example, "7.w1.weight" becomes "7.gate_proj.weight".
std::string NameInExpert(std::string_view name) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return std::string(name);
  const std::string_view number = name.substr(0, dot + 1), rest = name.substr(dot + 1);
  constexpr std::pair<std::string_view, std::string_view> kMatrices[] = {
      {"w1.", "gate_proj."}, {"w2.", "down_proj."}, {"w3.", "up_proj."}};
  for (const auto& [other, own] : kMatrices)
    if (rest.starts_with(other)) return fmt::format("{}{}{}", number, own, rest.substr(3));
  return std::string(name);
}

std::string WithScale(std::string name) {
  for (const auto& [other, own] : kScales) {
    if (!name.ends_with(other)) continue;
    name.replace(name.size() - other.size(), other.size(), own);
  }
  return name;
}

}  // namespace

bool IsMistralFormat(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / kMistralParams, error)) return false;
  if (!fs::exists(folder / "config.json", error)) return true;
  bool has_own = false;
  for (const fs::path& path : ListFolder(folder, error)) {
    const std::string name = path.filename().string();
    if (!name.ends_with(".safetensors") && !name.ends_with(".safetensors.index.json")) continue;
    if (name.starts_with("model")) return false;
    has_own |= name.starts_with(kMistralWeights);
  }
  return has_own;
}

Result<json::Value> ConfigOfMistralParams(const json::Value& value) {
  const JsonFields params(value, "");
  RETURN_IF_ERROR(RefuseOthers(params));
  json::Value config{json::Value::Object{}};
  RETURN_IF_ERROR(CopyShape(params, config));
  RETURN_IF_ERROR(CopyQuantization(params, config));
  ASSIGN_OR_RETURN(const json::Value* moe, params.Object("moe"));
  const bool is_latent = params.Given("kv_lora_rank") != nullptr;
  ASSIGN_OR_RETURN(json::Value rope, RopeOf(params, is_latent));
  const bool is_scaled = rope.Find("llama_4_scaling_beta") != nullptr;
  config.Set("rope_parameters", std::move(rope));
  const auto name = [&](const char* architecture, const char* type) {
    config.Set("architectures", json::Value(json::Value::Array{json::Value(architecture)}));
    config.Set("model_type", type);
  };
  if (is_latent) {
    if (params.Given("sliding_window") != nullptr)
      return Another("sliding_window", "expected none beside kv_lora_rank");
    RETURN_IF_ERROR(CopyLatent(params, moe, config));
    name("Mistral4ForCausalLM", "mistral4");
    return config;
  }
  RETURN_IF_ERROR(
      Copier(params, config)
          .Count("head_dim", "head_dim",
                 config.Find("hidden_size")->as_integer() /
                     std::max<int64_t>(1, config.Find("num_attention_heads")->as_integer())));
  RETURN_IF_ERROR(CopyWindows(params, config));
  if (moe != nullptr) {
    if (is_scaled) return Another("llama_4_scaling", "expected none beside moe");
    const JsonFields fields(*moe, "moe.");
    ASSIGN_OR_RETURN(const auto shared, fields.Integer("num_shared_experts", 0, kMaxNumberOf));
    if (shared.value_or(0) > 0)
      return Another("moe.num_shared_experts", "expected 0 without kv_lora_rank");
    RETURN_IF_ERROR(CopyExperts(fields, config));
    name("MixtralForCausalLM", "mixtral");
  } else if (is_scaled) {
    if (config.Find("layer_types") != nullptr)
      return Another("sliding_window", "expected no list together with llama_4_scaling");
    name("Ministral3ForCausalLM", "ministral3");
  } else {
    name("MistralForCausalLM", "mistral");
  }
  return config;
}

std::string NameOfMistralTensor(std::string_view name) {
  for (const auto& [other, own] : kOutside)
    if (name.starts_with(other))
      return WithScale(fmt::format("{}{}", own, name.substr(other.size())));
  constexpr std::string_view kLayers = "layers.";
  const size_t dot =
      name.starts_with(kLayers) ? name.find('.', kLayers.size()) : std::string_view::npos;
  if (dot == std::string_view::npos) return std::string(name);
  const std::string_view layer = name.substr(0, dot + 1), rest = name.substr(dot + 1);
  constexpr std::string_view kExperts = "experts.";
  if (rest.starts_with(kExperts)) {
    return WithScale(fmt::format("model.{}mlp.{}{}", layer, kExperts,
                                 NameInExpert(rest.substr(kExperts.size()))));
  }
  for (const auto& [other, own] : kInLayer) {
    if (rest.starts_with(other))
      return WithScale(fmt::format("model.{}{}{}", layer, own, rest.substr(other.size())));
  }
  return std::string(name);
}

std::string CanonicalNameIn(const fs::path& file, std::string_view name) {
  const bool is_mistral = file.filename().string().starts_with(kMistralWeights);
  return is_mistral ? NameOfMistralTensor(name) : CanonicalName(name);
}

Result<json::Value> ReadModelConfig(const fs::path& folder) {
  if (!IsMistralFormat(folder)) return ReadJsonObject(folder / "config.json");
  const fs::path path = folder / kMistralParams;
  ASSIGN_OR_RETURN(const json::Value params, ReadJsonObject(path));
  auto config = ConfigOfMistralParams(params);
  if (!config) return tl::unexpected<Error>(std::move(config).error().In(path.string()));
  return config;
}

}  // namespace sluice
