#include "models/latent_fields.h"

#include <cmath>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/attention.h"
#include "models/family_fields.h"

namespace sluice {
namespace {

// YaRN's mscale_all_dim scales whole scores, including the part that comes from elements without
// RoPE. Source: transformers' yarn_apply_mscale.
Result<double> ScaleOfScores(const JsonFields& fields, const ModelConfig& config) {
  ASSIGN_OR_RETURN(const json::Value* older, fields.Object("rope_scaling"));
  ASSIGN_OR_RETURN(const json::Value* block, fields.Object("rope_parameters"));
  const bool is_older = older != nullptr && !older->as_object().empty();
  if (is_older) block = older;
  if (block == nullptr || !config.rope.scaling) return 1;
  const JsonFields rope(*block, is_older ? "rope_scaling." : "rope_parameters.");
  ASSIGN_OR_RETURN(const auto all_dim, rope.Number("mscale_all_dim", 0, 1e3));
  const double factor = config.rope.scaling->factor;
  if (all_dim.value_or(0) == 0 || factor <= 1) return 1;
  return std::pow(0.1 * *all_dim * std::log(factor) + 1, 2);
}

Status CheckSizes(const JsonFields& fields, const LatentSpec& latent) {
  const auto refuse = [](const char* field, int64_t value, const std::string& expected) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} {} is not supported; supported are {}", field, value, expected),
                field);
  };
  if (latent.kv_rank % 2 != 0 || latent.kv_rank > kernels::kMaxHeadDim) {
    return refuse("kv_lora_rank", latent.kv_rank,
                  fmt::format("even numbers up to {}", kernels::kMaxHeadDim));
  }
  if (latent.kv_rank + latent.rope_dim > kernels::kMaxKeyDim) {
    return refuse("qk_rope_head_dim", latent.rope_dim,
                  fmt::format("numbers that make at most {} with kv_lora_rank {}",
                              kernels::kMaxKeyDim, latent.kv_rank));
  }
  // Some files also contain the sum of the two sizes.
  ASSIGN_OR_RETURN(const auto sum, fields.Integer("qk_head_dim", 1, kMaxConfigWidth));
  if (!sum || *sum == latent.qk_dim()) return {};
  return fields.Bad("qk_head_dim",
                    fmt::format("the sum of qk_nope_head_dim {} and qk_rope_head_dim {}",
                                latent.nope_dim, latent.rope_dim),
                    json::Value(*sum));
}

}  // namespace

Status ReadLatentAttention(const JsonFields& fields, const LatentDefaults& defaults,
                           ModelConfig& config) {
  const auto read = [&](const char* name, int64_t absent, int& size) -> Status {
    ASSIGN_OR_RETURN(const auto given, fields.Integer(name, 1, kMaxConfigWidth));
    size = static_cast<int>(given.value_or(absent));
    return {};
  };
  LatentSpec latent;
  // null means 0, not the default.
  const bool has_q_rank = fields.Given("q_lora_rank") != nullptr || !fields.Has("q_lora_rank");
  RETURN_IF_ERROR(read("q_lora_rank", has_q_rank ? defaults.q_rank : 0, latent.q_rank));
  RETURN_IF_ERROR(read("kv_lora_rank", defaults.kv_rank, latent.kv_rank));
  RETURN_IF_ERROR(read("qk_nope_head_dim", defaults.nope_dim, latent.nope_dim));
  RETURN_IF_ERROR(read("v_head_dim",
                       defaults.value_dim != 0 ? defaults.value_dim
                                               : config.hidden_size / config.num_attention_heads,
                       latent.value_dim));
  latent.rope_dim = static_cast<int>(config.rotary_dim);
  RETURN_IF_ERROR(CheckSizes(fields, latent));
  if (config.num_key_value_heads != config.num_attention_heads) {
    return fields.Bad("num_key_value_heads",
                      fmt::format("num_attention_heads {}, because all heads of latent attention "
                                  "share their keys and values",
                                  config.num_attention_heads),
                      json::Value(config.num_key_value_heads));
  }
  if (config.attention_bias && latent.q_rank == 0) {
    return Fail(ErrorCode::kUnsupported,
                "attention_bias with a q_lora_rank of null is not supported: the projection of q "
                "would have no bias, while another projection has one",
                "attention_bias");
  }
  ASSIGN_OR_RETURN(const auto interleaved, defaults.reads_interleaved
                                               ? fields.Bool("rope_interleave")
                                               : Result<std::optional<bool>>(std::nullopt));
  ASSIGN_OR_RETURN(const double factor, ScaleOfScores(fields, config));
  for (LayerSpec& layer : config.spec.layers) {
    AttentionSpec& attention = layer.attention;
    attention.latent = latent;
    attention.num_kv_heads = 1;
    attention.head_dim = latent.kv_rank + latent.rope_dim;
    attention.rotary_dim = latent.rope_dim;
    attention.scale = static_cast<float>(factor / std::sqrt(static_cast<double>(latent.qk_dim())));
    attention.rope_style = interleaved.value_or(defaults.interleaved)
                               ? kernels::RopeStyle::kInterleaved
                               : kernels::RopeStyle::kHalf;
  }
  return {};
}

Result<std::vector<bool>> ReadLayersWithExperts(const JsonFields& fields, const ModelConfig& config,
                                                int64_t dense) {
  constexpr const char* kTypes = "mlp_layer_types";
  ASSIGN_OR_RETURN(const auto frequency, fields.Integer("moe_layer_freq", 1, kMaxConfigLayers));
  if (frequency.value_or(1) != 1) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("moe_layer_freq {} is not supported; supported is 1", *frequency),
                "moe_layer_freq");
  }
  ASSIGN_OR_RETURN(const auto types, fields.Strings(kTypes));
  ASSIGN_OR_RETURN(const auto first, fields.Integer("first_k_dense_replace", 0, kMaxConfigLayers));
  std::vector<bool> sparse;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    sparse.push_back(i >= first.value_or(dense));
  if (!types) return sparse;
  if (std::ssize(*types) != config.num_hidden_layers) {
    return fields.Bad(kTypes,
                      fmt::format("a list of num_hidden_layers {} names", config.num_hidden_layers),
                      *fields.Given(kTypes));
  }
  for (size_t i = 0; i < types->size(); ++i) {
    const std::string& type = (*types)[i];
    if (type != "sparse" && type != "dense")
      return fields.Bad(kTypes, "a list in which each entry is sparse or dense", json::Value(type));
    sparse[i] = type == "sparse";
  }
  return sparse;
}

Status ReadDeepseekExperts(const JsonFields& fields, const DeepseekExpertDefaults& defaults,
                           MoeSpec moe, ModelConfig& config) {
  moe.router_module = "mlp.gate";
  moe.experts_module = "mlp.experts";
  moe.activation = config.activation;
  RETURN_IF_ERROR(ReadExpertCounts(fields,
                                   {.num_experts = defaults.num_experts,
                                    .top_k = defaults.top_k,
                                    .intermediate_size = defaults.intermediate_size},
                                   moe));
  RETURN_IF_ERROR(
      ReadExpertGroups(fields, {.groups = defaults.groups, .kept = defaults.kept_groups}, moe));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  if (defaults.normalize) moe.normalize = normalize.value_or(true);
  ASSIGN_OR_RETURN(const auto scale, fields.Number("routed_scaling_factor", 1e-6, 1e6));
  moe.weight_scale = static_cast<float>(scale.value_or(defaults.weight_scale));
  ASSIGN_OR_RETURN(const auto shared, fields.Integer("n_shared_experts", 0, kMaxConfigExperts));
  ASSIGN_OR_RETURN(const std::vector<bool> sparse,
                   ReadLayersWithExperts(fields, config, defaults.dense));
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.mlp.has_bias = false;
    if (!sparse[i]) continue;
    layer.mlp.module = "mlp.shared_experts";
    layer.mlp.intermediate_size = moe.intermediate_size * shared.value_or(defaults.shared);
    layer.moe = moe;
  }
  return {};
}

Status ReadSigmoidExperts(const JsonFields& fields, const DeepseekExpertDefaults& defaults,
                          ModelConfig& config) {
  RETURN_IF_ERROR(CheckMethod(fields, "topk_method", {"noaux_tc"}));
  RETURN_IF_ERROR(CheckMethod(fields, "scoring_func", {"sigmoid"}));
  ASSIGN_OR_RETURN(const auto draft,
                   fields.Integer("num_nextn_predict_layers", 0, kMaxConfigLayers));
  config.spec.num_draft_layers = draft.value_or(defaults.draft_layers);
  MoeSpec moe;
  moe.score = kernels::RouterScore::kSigmoid;
  moe.choice_bias = "mlp.gate.e_score_correction_bias";
  return ReadDeepseekExperts(fields, defaults, moe, config);
}

Status CheckMethod(const JsonFields& fields, const char* field,
                   std::initializer_list<std::string_view> known) {
  ASSIGN_OR_RETURN(const auto method, fields.String(field));
  if (!method) return {};
  for (const std::string_view one : known) {
    if (*method == one) return {};
  }
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{} '{}' is not supported; supported are {}", field, ShortName(*method),
                          fmt::join(known, ", ")),
              field);
}

}  // namespace sluice
