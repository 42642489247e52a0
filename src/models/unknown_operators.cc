#include "models/unknown_operators.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "kernels/attention.h"

namespace sluice {
namespace {

// A field that, where it is set to anything but null, false and 0, asks for an operator.
struct Sign {
  std::string_view field;
  std::string_view needs;
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
    {"layer_norm_eps", "LayerNorm"},
    {"layer_norm_epsilon", "LayerNorm"},
    {"alibi", "positions by ALiBi"},
    {"use_parallel_residual", "attention and MLP side by side"},
    {"parallel_attn", "attention and MLP side by side"},
    {"clip_qkv", "limits of q, k and v"},
    {"mrope_section", "rope of several dimensions"},
    {"is_encoder_decoder", "an encoder"},
    {"num_zero_experts", "experts that compute nothing"},
    {"altup_num_inputs", "several residual streams"},
    {"hc_mult", "several residual streams"},
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

void FindActivations(const json::Value& decoder, Findings& findings) {
  for (const char* field :
       {"hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act"}) {
    const json::Value* name = decoder.Find(field);
    if (name == nullptr || !name->is_string() ||
        IsOneOf(name->as_string(), {"silu", "swish", "gelu_pytorch_tanh"}))
      continue;
    findings.Add("another activation", field, name->as_string());
  }
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

}  // namespace

std::vector<std::string> UnknownOperators(const json::Value& config) {
  Findings findings;
  if (!config.is_object()) return {};
  const json::Value* text = config.Find("text_config");
  const json::Value& decoder = text != nullptr && text->is_object() ? *text : config;
  for (const Sign& sign : kSigns) {
    if (HasValue(decoder.Find(sign.field))) findings.Add(sign.needs, sign.field);
  }
  FindActivations(decoder, findings);
  FindLayerTypes(decoder, findings);
  FindRopes(decoder, findings);
  FindSizes(decoder, findings);
  return findings.Take();
}

}  // namespace sluice
