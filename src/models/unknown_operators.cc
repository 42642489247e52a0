#include "models/unknown_operators.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "base/json_fields.h"
#include "kernels/attention.h"

namespace sluice {
namespace {

// A field that, where it is set to anything but null, false and 0, asks for an operator.
struct Sign {
  std::string_view field;
  std::string_view needs;
  bool of_decoders = false;  // encoders have it
};

constexpr auto kSigns = std::to_array<Sign>({
    {"kv_lora_rank", "latent attention"},
    {"index_topk", "attention to positions that an indexer chooses"},
    {"mamba_d_state", "state space layers"},
    {"mamba_num_heads", "state space layers"},
    {"ssm_state_size", "state space layers"},
    {"state_size", "state space layers"},
    {"linear_num_key_heads", "linear attention"},
    {"linear_conv_kernel_dim", "linear attention"},
    {"conv_L_cache", "convolutions"},
    {"lru_width", "recurrent layers"},
    {"rwkv_version", "recurrent layers"},
    {"layer_norm_eps", "LayerNorm", true},
    {"layer_norm_epsilon", "LayerNorm", true},
    {"norm_epsilon", "LayerNorm", true},
    {"alibi", "positions by ALiBi"},
    {"relative_attention", "attention to relative positions"},
    {"relative_attention_num_buckets", "attention to relative positions"},
    {"use_parallel_residual", "attention and MLP side by side"},
    {"parallel_attn", "attention and MLP side by side"},
    {"clip_qkv", "limits of q, k and v"},
    {"mrope_section", "rope of several dimensions"},
    {"is_encoder_decoder", "an encoder"},
    {"num_zero_experts", "experts that compute nothing"},
    {"altup_num_inputs", "several residual streams"},
    {"hc_mult", "several residual streams"},
});

// What the modules of an architecture compute that its fields do not tell.
struct TypeSign {
  std::string_view model_type;
  std::string_view needs;
};

constexpr auto kTypes = std::to_array<TypeSign>({
    {"bloom", "positions by ALiBi"},
    {"cohere", "attention and MLP side by side"},
    {"cohere2", "attention and MLP side by side"},
    {"codegen", "attention and MLP side by side"},
    {"dbrx", "LayerNorm"},
    {"gpt2", "learned positions"},
    {"gpt_bigcode", "learned positions"},
    {"gptj", "attention and MLP side by side"},
    {"jina_bert_v3", "adapters of its own"},
    {"mpt", "positions by ALiBi"},
    {"nemotron", "LayerNorm"},
    {"olmo", "LayerNorm"},
    {"opt", "LayerNorm"},
    {"opt", "learned positions"},
    {"persimmon", "an MLP without a gate"},
    {"phi", "attention and MLP side by side"},
    {"phimoe", "LayerNorm"},
    {"phimoe", "a choice of experts by sparsemixer"},
    {"starcoder2", "an MLP without a gate"},
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
    // Several fields may ask for the same.
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
        IsOneOf(name->as_string(), {"silu", "swish", "gelu_pytorch_tanh"}) ||
        (is_encoder && IsOneOf(name->as_string(), {"gelu", "relu"})))
      continue;
    findings.Add("another activation", field, name->as_string());
  }
}

void FindPositions(const json::Value& decoder, bool is_encoder, Findings& findings) {
  const json::Value* kind = decoder.Find("position_embedding_type");
  if (kind == nullptr || !kind->is_string() || IsOneOf(kind->as_string(), {"rope", "nope"}) ||
      (is_encoder && IsOneOf(kind->as_string(), {"absolute", "rotary"})))
    return;
  findings.Add("positions of another kind", "position_embedding_type", kind->as_string());
}

// An encoder, by what those of BERT's kind say.
bool IsLikeBert(const json::Value& config) {
  for (const char* field : {"type_vocab_size", "relative_attention_num_buckets", "position_buckets",
                            "sinusoidal_pos_embds"}) {
    if (config.Find(field) != nullptr) return true;
  }
  return false;
}

void FindLayerTypes(const json::Value& decoder, Findings& findings) {
  for (const char* field : {"layer_types", "layers_block_type", "hybrid_override_pattern"}) {
    const json::Value* types = decoder.Find(field);
    if (types != nullptr && types->is_string()) findings.Add("layers of other kinds", field);
    if (types == nullptr || !types->is_array()) continue;
    for (const json::Value& type : types->as_array()) {
      if (!type.is_string() || IsOneOf(type.as_string(), {"full_attention", "sliding_attention",
                                                          "chunked_attention", "attention"}))
        continue;
      findings.Add(fmt::format("layers of kind {}", type.as_string()), field);
    }
  }
}

void FindRopes(const json::Value& decoder, Findings& findings) {
  const auto look = [&](const json::Value& block, std::string_view field) {
    if (HasValue(block.Find("mrope_section"))) findings.Add("rope of several dimensions", field);
    for (const char* key : {"rope_type", "type"}) {
      const json::Value* type = block.Find(key);
      if (type == nullptr || !type->is_string() ||
          IsOneOf(type->as_string(),
                  {"default", "linear", "dynamic", "yarn", "longrope", "su", "llama3"}))
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
  if (above("n_group", 1)) findings.Add("a choice of experts in groups", "n_group");
}

// Modules that layers of the families have, by the last parts of their names.
constexpr auto kModules = std::to_array<std::string_view>({
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "qkv_proj",
    "q_norm",
    "k_norm",
    "self_attn",
    "gate_proj",
    "up_proj",
    "down_proj",
    "gate_up_proj",
    "gate",
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
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "post_feedforward_layernorm_1",
    "pre_feedforward_layernorm_2",
    "post_feedforward_layernorm_2",
    "post_per_layer_input_norm",
});

// Of "model.layers.3.mlp.experts.7.w1.weight" "mlp.experts.w1"; empty for what is in no layer.
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

// What layers of a decoder hold that those of no family do.
void FindModules(const Checkpoint& checkpoint, bool is_encoder, Findings& findings) {
  if (is_encoder) return;
  constexpr size_t kMostShown = 8;
  std::set<std::string> unknown;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!name.starts_with("model.")) continue;
    const std::string module = ModuleInLayer(name);
    const std::string_view last = std::string_view(module).substr(module.rfind('.') + 1);
    if (module.empty()) continue;
    if (last.ends_with("norm") && name.ends_with(".bias")) {
      findings.Add("LayerNorm", ShortName(name));
    } else if (std::find(kModules.begin(), kModules.end(), last) == kModules.end() &&
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
    for (const Sign& sign : kSigns) {
      if (HasValue(object.Find(sign.field)) && !(sign.of_decoders && is_encoder))
        findings.Add(sign.needs, sign.field);
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
  if (checkpoint != nullptr) FindModules(*checkpoint, is_encoder, findings);
  return findings.Take();
}

}  // namespace sluice
