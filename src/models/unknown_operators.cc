#include "models/unknown_operators.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "base/json_fields.h"
#include "kernels/attention.h"
#include "models/registry.h"

namespace sluice {
namespace {

// A field that requires an operator if its value is anything but null, false and 0.
struct Sign {
  std::string_view field;
  std::string_view needs;
};

constexpr auto kSigns = std::to_array<Sign>({
    {"mamba_dt_rank", "Mamba-1 state space layers"},
    {"time_step_rank", "Mamba-1 state space layers"},
    {"state_size", "a decoder without attention layers"},
    {"kda_lower_bound", "Kimi's linear attention"},
    {"linear_head_dim", "Kimi's linear attention"},
    {"lru_width", "recurrent layers"},
    {"rwkv_version", "recurrent layers"},
    {"alibi", "ALiBi position biases"},
    {"relative_attention", "attention with relative positions"},
    {"relative_attention_num_buckets", "attention with relative positions"},
    {"mrope_section", "multi-dimensional rope"},
    {"is_encoder_decoder", "an encoder"},
    {"num_zero_experts", "experts that compute nothing"},
    {"altup_num_inputs", "several residual streams"},
    {"hc_mult", "several residual streams"},
    {"sparse_block_size", "block-sparse attention"},
    {"sparse_mode", "block-sparse attention"},
    {"sparse_attention", "block-sparse attention"},
    {"sparse_config", "block-sparse attention"},
    {"blocksparse_block_size", "block-sparse attention"},
    {"compress_block", "block-sparse attention"},
    {"index_topk_blocks", "block-sparse attention"},
    {"block_per_row", "block-sparse attention"},
    {"attention_window", "attention to two-sided windows and selected tokens"},
    {"hash_code_len", "attention with hashing"},
    {"num_hashes", "attention with hashing"},
    {"keep_window_size", "dynamic mask attention, whose mask depends on the values"},
    {"lambda_std_dev", "differential attention"},
    {"position_bias_num_buckets", "attention with relative positions"},
    {"max_2d_position_embeddings", "positions in two dimensions"},
    {"rotary_value", "rope on values"},
    {"H_cycles", "layers that run several times"},
    {"add_cross_attention", "cross-attention"},
    {"cross_attention_layers", "cross-attention"},
    {"cross_attn_every_n_layers", "cross-attention"},
    {"entity_vocab_size", "embeddings of entities"},
    {"pronunciation_vocab_size", "embeddings of pronunciations"},
    {"use_task_id", "embeddings of tasks"},
    {"use_bottleneck", "layers within layers"},
    {"adapter_reduction_factor", "built-in adapters"},
    {"q_groups", "grouped matrices"},
    {"head_ratio", "convolutions"},
    {"rnn_units", "recurrent layers"},
    {"mm_vision_tower", "an image tower"},
    {"visual", "an image tower"},
    {"dynamic_routing", "layers from which tokens exit early"},
});

// Names of "..._config" objects that describe models other than the decoder; only a part of the
// name is compared.
struct TowerSign {
  std::string_view part;
  std::string_view needs;
};

constexpr auto kTowers = std::to_array<TowerSign>({
    {"vision", "an image tower"},
    {"image", "an image tower"},
    {"video", "an image tower"},
    {"vq_", "an image tower"},
    {"audio", "an audio tower"},
    {"speech", "an audio tower"},
    {"encoder", "an encoder"},
    {"thinker", "a model of several parts"},
    {"talker", "a model of several parts"},
    {"depth", "a model of several parts"},
    {"codec", "a model of several parts"},
    {"wav", "a model of several parts"},
    {"vlm_", "a model of several parts"},
    {"dit_", "a model of several parts"},
});

// Operators that an architecture's modules need although no field of config.json shows it.
struct TypeSign {
  std::string_view model_type;
  std::string_view needs;
};

constexpr auto kTypes = std::to_array<TypeSign>({
    {"axk2", "gated norms"},
    {"bert-generation", "norms after the residual sum"},
    {"bloom", "ALiBi position biases"},
    {"ctrl", "sinusoidal positions"},
    {"deberta", "attention with relative positions"},
    {"deberta-v2", "attention with relative positions"},
    {"dots3_note_text", "latent attention with a norm of the shared key"},
    {"esmc", "RMS norms of all heads in an encoder"},
    {"eurobert", "RMS norms in an encoder"},
    {"jetmoe", "experts in the attention layers"},
    {"jina_bert_v3", "built-in adapters"},
    {"jina_embeddings_v3", "built-in adapters"},
    {"longcat_flash", "two attention sublayers per layer"},
    {"modernbert-decoder", "an output head with two layers"},
    {"mpt", "ALiBi position biases"},
    {"openai-gpt", "norms after the residual sum"},
    {"qwen4_exp_text", "n-gram embeddings"},
    {"roberta-prelayernorm", "norms before sublayers in an encoder"},
    {"roformer", "rope in an encoder with biases"},
    {"rwkv", "recurrent layers"},
    {"xglm", "sinusoidal positions"},
    {"xlm-roberta-xl", "norms before sublayers in an encoder"},
    {"xlnet", "attention with relative positions"},
    {"xlstm", "recurrent layers"},
});

bool HasValue(const json::Value* value) {
  if (value == nullptr || value->is_null()) return false;
  if (value->is_bool()) return value->as_bool();
  return !value->is_number() || value->as_double() != 0;
}

bool IsOneOf(std::string_view text, std::initializer_list<std::string_view> known) {
  return std::find(known.begin(), known.end(), text) != known.end();
}

class Findings {
 public:
  void Add(std::string_view needs, std::string_view field, std::string_view value = "") {
    // Several fields may require the same operator.
    if (!told_.insert(std::string(needs)).second) return;
    list_.push_back(value.empty() ? fmt::format("{} ({})", needs, field)
                                  : fmt::format("{} ({} {})", needs, field, value));
  }
  std::vector<std::string> Take() { return std::move(list_); }

 private:
  std::set<std::string> told_;
  std::vector<std::string> list_;
};

void FindActivations(const json::Value& decoder, bool is_encoder, Findings& findings) {
  for (const char* field :
       {"hidden_act", "hidden_activation", "activation", "activation_function", "mlp_hidden_act"}) {
    const json::Value* name = decoder.Find(field);
    if (name == nullptr || !name->is_string() ||
        IsOneOf(name->as_string(), {"silu", "swish", "gelu", "gelu_python", "gelu_pytorch_tanh",
                                    "gelu_python_tanh", "gelu_new", "gelu_fast", "relu"}) ||
        (!is_encoder && IsOneOf(name->as_string(), {"relu2", "xielu"})))
      continue;
    findings.Add("another activation", field, name->as_string());
  }
}

void FindPositions(const json::Value& decoder, bool is_encoder, Findings& findings) {
  const json::Value* kind = decoder.Find("position_embedding_type");
  if (kind == nullptr || !kind->is_string() || IsOneOf(kind->as_string(), {"rope", "nope"}) ||
      (is_encoder && IsOneOf(kind->as_string(), {"absolute", "rotary"})))
    return;
  findings.Add("unsupported kind of positions", "position_embedding_type", kind->as_string());
}

// Returns whether this is an encoder. Recognizes it by the fields of BERT and similar models.
bool IsLikeBert(const json::Value& config) {
  for (const char* field : {"type_vocab_size", "relative_attention_num_buckets", "position_buckets",
                            "sinusoidal_pos_embds"}) {
    if (config.Find(field) != nullptr) return true;
  }
  return false;
}

// Returns whether the fields describe this kind of layer, and one of our operators computes it.
bool IsKnownKind(const json::Value& decoder, std::string_view kind) {
  const auto has = [&](const char* field) { return HasValue(decoder.Find(field)); };
  const bool is_mamba_2 = has("mamba_n_heads") || has("mamba_num_heads");
  if (kind == "linear_attention") return has("linear_num_value_heads") || is_mamba_2;
  if (kind == "mamba") return is_mamba_2;
  if (kind == "conv") return has("conv_L_cache");
  return IsOneOf(kind, {"full_attention", "sliding_attention", "chunked_attention",
                        "indexed_attention", "attention"});
}

void FindLayerTypes(const json::Value& decoder, Findings& findings) {
  for (const char* field : {"layer_types", "layers_block_type", "hybrid_override_pattern"}) {
    const json::Value* types = decoder.Find(field);
    if (types != nullptr && types->is_string()) findings.Add("layers of other kinds", field);
    if (types == nullptr || !types->is_array()) continue;
    for (const json::Value& type : types->as_array()) {
      if (!type.is_string() || IsKnownKind(decoder, type.as_string())) continue;
      findings.Add(fmt::format("layers of kind {}", type.as_string()), field);
    }
  }
}

void FindRopes(const json::Value& decoder, Findings& findings) {
  const auto look = [&](const json::Value& block, std::string_view field) {
    if (HasValue(block.Find("mrope_section"))) findings.Add("multi-dimensional rope", field);
    for (const char* key : {"rope_type", "type"}) {
      const json::Value* type = block.Find(key);
      if (type == nullptr || !type->is_string() ||
          IsOneOf(type->as_string(), {"default", "linear", "dynamic", "yarn", "deepseek_yarn",
                                      "longrope", "su", "llama3"}))
        continue;
      findings.Add("rope of another type", field, type->as_string());
    }
  };
  for (const char* field : {"rope_parameters", "rope_scaling"}) {
    const json::Value* block = decoder.Find(field);
    if (block == nullptr || !block->is_object()) continue;
    look(*block, field);
    for (const auto& [key, inner] : block->as_object()) {
      if (inner.is_object()) look(inner, field);
    }
  }
}

void FindSizes(const json::Value& decoder, Findings& findings) {
  const auto above = [&](const char* field, double most) {
    const json::Value* value = decoder.Find(field);
    return value != nullptr && value->is_number() && value->as_double() > most;
  };
  constexpr double kWidestHead = kernels::kMaxHeadDim;
  for (const char* field : {"head_dim", "global_head_dim", "qk_head_dim", "v_head_dim"}) {
    if (above(field, kWidestHead))
      findings.Add(fmt::format("heads wider than {}", kernels::kMaxHeadDim), field);
  }
  const auto number = [&](const char* field) {
    const json::Value* value = decoder.Find(field);
    return value != nullptr && value->is_number() ? value->as_double() : 0;
  };
  // Latent attention may also have values that are wider than keys; it is reported separately.
  const double keys = number("head_dim"), values = number("v_head_dim");
  if (keys != 0 && values > keys && number("kv_lora_rank") == 0) {
    findings.Add("values wider than keys", "v_head_dim",
                 fmt::format("{} beside head_dim {}", values, keys));
  }
  for (const char* field : {"embedding_size", "input_embedding_size"}) {
    if (number(field) != 0 && number(field) != number("hidden_size"))
      findings.Add("embeddings whose width differs from the layers'", field);
  }
}

// Finds other models that `config` describes in addition to its decoder. Skips architectures of
// which sluice serves only the text part.
void FindTowers(const json::Value& config, Findings& findings) {
  const json::Value* const names = config.Find("architectures");
  if (names != nullptr && names->is_array() && !names->as_array().empty() &&
      std::ranges::any_of(ModelFamilies(), [&](const ModelFamily* family) {
        return names->as_array().front() == json::Value(std::string(family->architecture));
      }))
    return;
  for (const auto& [key, value] : config.as_object()) {
    if (!value.is_object() || !key.ends_with("_config")) continue;
    for (const TowerSign& sign : kTowers) {
      if (key.find(sign.part) == std::string::npos) continue;
      findings.Add(sign.needs, key);
      break;
    }
  }
  const json::Value* const kind = config.Find("attention_type");
  if (kind != nullptr && kind->is_string() && kind->as_string() == "block_sparse")
    findings.Add("block-sparse attention", "attention_type", kind->as_string());
}

// Last parts of the names of modules in the layers of supported families.
constexpr auto kModules = std::to_array<std::string_view>({
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "qkv_proj",
    "q_norm",
    "k_norm",
    "q_a_proj",
    "q_a_layernorm",
    "q_b_proj",
    "kv_a_proj_with_mqa",
    "kv_a_layernorm",
    "kv_b_proj",
    "wq_b",
    "wk",
    "weights_proj",
    "query_layernorm",
    "key_layernorm",
    "g_proj",
    "self_attn",
    "gate_proj",
    "up_proj",
    "down_proj",
    "gate_up_proj",
    "c_fc",
    "c_proj",
    "act_fn",
    "gate",
    "wg",
    "router",
    "proj",
    "w1",
    "w2",
    "w3",
    "input_linear",
    "output_linear",
    "experts",
    "shared_expert_gate",
    "per_layer_input_gate",
    "per_layer_projection",
    "input_layernorm",
    "attention_layernorm",
    "feedforward_layernorm",
    "post_attention_layernorm",
    "post_self_attn_layernorm",
    "pre_mlp_layernorm",
    "post_mlp_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "post_feedforward_layernorm_1",
    "pre_feedforward_layernorm_2",
    "post_feedforward_layernorm_2",
    "post_per_layer_input_norm",
});

// Converts, for example, "model.layers.3.mlp.experts.7.w1.weight" to "mlp.experts.w1". Returns ""
// for tensors outside layers.
std::string ModuleInLayer(std::string_view tensor) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = tensor.find(kLayers);
  if (at == std::string_view::npos) return "";
  std::string module;
  std::string_view rest = tensor.substr(at + kLayers.size());
  for (size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
    const std::string_view part = rest.substr(0, dot);
    rest.remove_prefix(dot + 1);
    if (part.find_first_not_of("0123456789") == std::string_view::npos) continue;
    if (!module.empty()) module += '.';
    module += part;
  }
  return module;
}

// Finds modules in a decoder's layers that no family has.
void FindModules(const Checkpoint& checkpoint, bool is_encoder, Findings& findings) {
  if (is_encoder) return;
  constexpr size_t kMostShown = 8;
  std::set<std::string> unknown;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!name.starts_with("model.")) continue;
    const std::string module = ModuleInLayer(name);
    const std::string_view last = std::string_view(module).substr(module.rfind('.') + 1);
    if (module.empty()) continue;
    if (std::find(kModules.begin(), kModules.end(), last) == kModules.end() &&
        unknown.size() < kMostShown) {
      unknown.insert(module);
    }
  }
  for (const std::string& module : unknown)
    findings.Add(fmt::format("a module {}", ShortName(module)), "in its layers");
}

}  // namespace

std::vector<std::string> UnknownOperators(const json::Value& config, const Checkpoint* checkpoint) {
  Findings findings;
  if (!config.is_object()) return {};
  const json::Value* text = config.Find("text_config");
  const json::Value& decoder = text != nullptr && text->is_object() ? *text : config;
  const bool is_encoder = IsLikeBert(decoder);
  const auto find_signs = [&](const json::Value& object) {
    // Configurations of Mamba-2 still contain this field of Mamba 1, which has no effect.
    const bool is_mamba_2 = HasValue(object.Find("n_groups")) && HasValue(object.Find("num_heads"));
    for (const Sign& sign : kSigns) {
      if (is_mamba_2 && sign.field == "time_step_rank") continue;
      if (HasValue(object.Find(sign.field))) findings.Add(sign.needs, sign.field);
    }
  };
  find_signs(decoder);
  for (const char* block : {"attn_config", "ffn_config"}) {
    const json::Value* inner = decoder.Find(block);
    if (inner != nullptr && inner->is_object()) find_signs(*inner);
  }
  const json::Value* const type = decoder.Find("model_type");
  if (type != nullptr && type->is_string()) {
    for (const TypeSign& sign : kTypes) {
      if (sign.model_type == type->as_string())
        findings.Add(sign.needs, "model_type", sign.model_type);
    }
  }
  FindActivations(decoder, is_encoder, findings);
  FindPositions(decoder, is_encoder, findings);
  FindLayerTypes(decoder, findings);
  FindRopes(decoder, findings);
  FindSizes(decoder, findings);
  FindTowers(config, findings);
  if (checkpoint != nullptr) FindModules(*checkpoint, is_encoder, findings);
  return findings.Take();
}

}  // namespace sluice
