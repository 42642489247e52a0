// Step 3.5 and 3.7 Flash, the text part: norm weights w stand for 1 + w, also in per-head norms of
// q and k; a gate per head after attention. Most layers have a window, more heads, and separate
// RoPE frequencies. The first layers have an MLP. The later ones have a shared expert, and experts
// chosen by sigmoid scores plus a bias. The last layers limit the activations.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"
#include "models/rope_frequencies.h"

namespace sluice {
namespace step3p7 {
namespace {

// Reads the layers' numbers of heads; keys of per_layer_config are layer numbers, possibly with
// leading zeros.
Status ReadHeads(const JsonFields& fields, const std::vector<bool>& slides, ModelConfig& config) {
  constexpr int64_t kMostHeads = 4096;
  ASSIGN_OR_RETURN(const json::Value* layers, fields.Object("per_layer_config"));
  ASSIGN_OR_RETURN(auto sliding, fields.Integer("num_sliding_attention_heads", 1, kMostHeads));
  ASSIGN_OR_RETURN(const json::Value* published, fields.Object("attention_other_setting"));
  if (!sliding && published != nullptr) {
    ASSIGN_OR_RETURN(sliding, JsonFields(*published, "attention_other_setting.")
                                  .Integer("num_attention_heads", 1, kMostHeads));
  }
  const auto set = [&](AttentionSpec& attention, int64_t heads) -> Status {
    if (heads % config.num_key_value_heads != 0) {
      return fields.Bad(
          "num_sliding_attention_heads",
          fmt::format("a multiple of num_key_value_heads {}", config.num_key_value_heads),
          json::Value(heads));
    }
    attention.num_heads = static_cast<int>(heads);
    return {};
  };
  for (size_t i = 0; layers == nullptr && i < slides.size(); ++i) {
    if (slides[i] && sliding) RETURN_IF_ERROR(set(config.spec.layers[i].attention, *sliding));
  }
  if (layers == nullptr) return {};
  for (const auto& [key, value] : layers->as_object()) {
    const std::string name = fmt::format("per_layer_config.{}", ShortName(key));
    const bool is_number =
        !key.empty() && key.size() < 8 && key.find_first_not_of("0123456789") == std::string::npos;
    const size_t index = is_number ? static_cast<size_t>(std::stoul(key)) : slides.size();
    if (index >= slides.size() || !value.is_object())
      return fields.Bad(name, "the settings of a layer under its number", value);
    const JsonFields own(value, name + ".");
    for (const auto& [field, setting] : value.as_object()) {
      if (field == "num_attention_heads") continue;
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}.{} is not supported: layers may differ in their "
                              "num_attention_heads alone",
                              name, ShortName(field)),
                  name);
    }
    ASSIGN_OR_RETURN(const auto heads, own.Integer("num_attention_heads", 1, kMostHeads));
    if (heads) RETURN_IF_ERROR(set(config.spec.layers[index].attention, *heads));
  }
  return {};
}

// The first RoPE table is for layers without a window.
Status ReadRopes(const JsonFields& fields, const std::vector<bool>& slides, ModelConfig& config) {
  ASSIGN_OR_RETURN(const json::Value* blocks, fields.Object("rope_parameters"));
  const json::Value around(
      json::Value::Object{{"max_position_embeddings", config.max_position_embeddings}});
  std::vector<std::vector<float>> tables;
  std::vector<int64_t> widths;
  RopeConfig ropes[2];
  for (const bool is_sliding : {false, true}) {
    RopeConfig& rope = ropes[is_sliding ? 1 : 0];
    rope.theta = config.rope.theta;
    const char* kind = is_sliding ? kSlidingAttention : kFullAttention;
    if (blocks != nullptr) {
      ASSIGN_OR_RETURN(const json::Value* block,
                       JsonFields(*blocks, "rope_parameters.").Object(kind));
      const bool is_used = std::find(slides.begin(), slides.end(), is_sliding) != slides.end();
      if (block == nullptr && is_used) return JsonFields(*blocks, "rope_parameters.").Missing(kind);
      if (block != nullptr) {
        ASSIGN_OR_RETURN(rope,
                         ParseRopeBlock(around, *block, fmt::format("rope_parameters.{}", kind),
                                        config.rope.theta));
      }
    }
    if (rope.scaling && (rope.scaling->kind != RopeKind::kLlama3 || is_sliding)) {
      return Fail(
          ErrorCode::kUnsupported,
          fmt::format("rope_parameters.{}.rope_type '{}' is not supported by this "
                      "architecture; supported are default and, in layers without a window, llama3",
                      kind, RopeKindName(rope.scaling->kind)),
          fmt::format("rope_parameters.{}.rope_type", kind));
    }
    const double part = rope.partial_rotary_factor.value_or(1);
    const auto width = static_cast<int64_t>(static_cast<double>(config.head_dim) * part);
    if (width < 2 || width % 2 != 0) {
      return fields.Bad(
          fmt::format("rope_parameters.{}.partial_rotary_factor", kind),
          fmt::format("a part that is an even number of head_dim {}", config.head_dim),
          json::Value(part));
    }
    widths.push_back(width);
    tables.push_back(RopeTableOf(rope, width));
  }
  config.rope = ropes[0];
  config.rotary_dim = widths[0];
  config.spec.rope_tables = tables;
  for (size_t i = 0; i < slides.size(); ++i) {
    AttentionSpec& attention = config.spec.layers[i].attention;
    attention.rope_table = slides[i] ? 1 : 0;
    attention.rotary_dim = static_cast<int>(widths[slides[i] ? 1 : 0]);
  }
  return {};
}

// Reads a limit per layer; 0: no limit. All are 0 if the field is absent.
Result<std::vector<float>> ReadLimits(const JsonFields& fields, const ModelConfig& config,
                                      const char* name) {
  ASSIGN_OR_RETURN(const json::Value::Array* list, fields.Array(name));
  std::vector<float> limits(static_cast<size_t>(config.num_hidden_layers));
  if (list == nullptr) return limits;
  // Additional numbers belong to the draft layers.
  if (list->size() < limits.size())
    return fields.Bad(name, "a number or null for each layer", *fields.Given(name));
  for (size_t i = 0; i < limits.size(); ++i) {
    const json::Value& value = (*list)[i];
    if (value.is_null()) continue;
    if (!value.is_number() || !(value.as_double() >= 0 && value.as_double() <= 1e6))
      return fields.Bad(name, "numbers from 0 to 1e6, or null", value);
    limits[i] = static_cast<float>(value.as_double());
  }
  return limits;
}

// Source: transformers' Step3p7TextConfig, Step3p7Attention, Step3p7TopKRouter and
// Step3p7SparseMoeBlock.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(RefuseField(fields, "use_bidirectional_attention", "tokens that see later ones"));
  ASSIGN_OR_RETURN(const std::vector<bool> slides,
                   ReadWindowLayers(fields, {.pattern = 1}, config));
  RETURN_IF_ERROR(ReadHeads(fields, slides, config));
  RETURN_IF_ERROR(ReadRopes(fields, slides, config));
  MoeSpec moe = {.router_module = "moe.gate",
                 .experts_module = "moe",
                 .fused_down = "down_proj.weight",
                 .fused_gate = "gate_proj.weight",
                 .fused_up = "up_proj.weight",
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSigmoid,
                 .choice_bias = "moe.router_bias",
                 .normalize = true};
  RETURN_IF_ERROR(
      ReadExpertCounts(fields, {.num_experts = 288, .top_k = 8, .intermediate_size = 1280}, moe));
  ASSIGN_OR_RETURN(const auto shared, fields.Integer("share_expert_dim", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(const auto scale, fields.Number("moe_router_scaling_factor", 1e-6, 1e6));
  moe.weight_scale = static_cast<float>(scale.value_or(1));
  ASSIGN_OR_RETURN(const auto scalar, fields.Number("query_pre_attn_scalar", 1e-3, 1e6));
  ASSIGN_OR_RETURN(const auto draft,
                   fields.Integer("num_nextn_predict_layers", 0, kMaxConfigLayers));
  config.spec.num_draft_layers = draft.value_or(0);
  ASSIGN_OR_RETURN(const std::vector<bool> sparse, ReadMlpLayerTypes(fields, config, 3));
  ASSIGN_OR_RETURN(const std::vector<float> limits, ReadLimits(fields, config, "swiglu_limits"));
  ASSIGN_OR_RETURN(const std::vector<float> shared_limits,
                   ReadLimits(fields, config, "swiglu_limits_shared"));
  config.spec.norm_weight_offset = 1;
  for (size_t i = 0; i < slides.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.attention.gate = AttentionGate::kEachHead;
    layer.attention.gate_projection = "g_proj";
    if (scalar) layer.attention.scale = static_cast<float>(1 / std::sqrt(*scalar));
    layer.mlp.limit = shared_limits[i];
    if (!sparse[i]) continue;
    layer.mlp.module = "share_expert";
    layer.mlp.intermediate_size = shared.value_or(1280);
    layer.moe = moe;
    layer.moe->limit = limits[i];
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 128815,
                                      .hidden_size = 4096,
                                      .intermediate_size = 11264,
                                      .num_hidden_layers = 45,
                                      .num_attention_heads = 64,
                                      .kv_heads = 8,
                                      .head_dim = 128,
                                      .max_position_embeddings = 128000,
                                      .rms_norm_eps = 1e-5,
                                      .is_nested = true};

}  // namespace
}  // namespace step3p7

const ModelFamily kStep3p7 = {
    "Step3p7ForConditionalGeneration",
    "step3p7",
    step3p7::kDefaults,
    step3p7::Read,
    {.models = "Step 3.7 Flash",
     .operators = "the text part: norms that scale by 1 + w, also per head; a gate per head after "
                  "attention; windows in some layers, with their own number of heads and their own "
                  "rope; experts with a sigmoid router, a selection bias and scaled routing "
                  "weights; a shared expert; clamped activations of all experts",
     .golden = "tiny-step3p7",
     .error = 4.1e-06}};

}  // namespace sluice
