#include "models/family_fields.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/attention.h"

namespace sluice {
namespace {

Status RefusePartialRope(const RopeConfig& rope, const char* name) {
  if (rope.partial_rotary_factor.value_or(1) == 1) return {};
  const std::string field = fmt::format("{}.partial_rotary_factor", name);
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{} {} is not supported, only 1", field, *rope.partial_rotary_factor),
              field);
}

}  // namespace

Result<std::optional<std::vector<std::string>>> ReadLayerTypes(
    const JsonFields& fields, const ModelConfig& config, const std::vector<std::string>& kinds) {
  ASSIGN_OR_RETURN(auto types, fields.Strings("layer_types"));
  if (!types) return std::nullopt;
  for (const std::string& type : *types) {
    if (std::find(kinds.begin(), kinds.end(), type) == kinds.end()) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("layer_types '{}' is not supported by {}; supported is {}",
                              ShortName(type), config.architecture, fmt::join(kinds, ", ")),
                  "layer_types");
    }
  }
  if (static_cast<int64_t>(types->size()) != config.num_hidden_layers) {
    return fields.Bad("layer_types",
                      fmt::format("a list of num_hidden_layers {} names", config.num_hidden_layers),
                      *fields.Given("layer_types"));
  }
  return types;
}

Status ReadFullAttention(const JsonFields& fields, const ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto sliding, fields.Bool("use_sliding_window"));
  if (sliding.value_or(false)) {
    return Fail(ErrorCode::kUnsupported,
                "use_sliding_window true is not supported by this architecture",
                "use_sliding_window");
  }
  ASSIGN_OR_RETURN(const auto types, ReadLayerTypes(fields, config, {kFullAttention}));
  return {};
}

Status ReadWindow(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  for (LayerSpec& layer : config.spec.layers)
    layer.attention.span.window = static_cast<int32_t>(window.value_or(0));
  return {};
}

// Source: transformers' Qwen2Config and Qwen3Config.
Status ReadSlidingAttention(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto use_window, fields.Bool("use_sliding_window"));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  ASSIGN_OR_RETURN(const auto first, fields.Integer("max_window_layers", 0, kMaxConfigLayers));
  constexpr int64_t kDefaultFirst = 28;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    const bool slides = types ? (*types)[i] == kSlidingAttention
                              : use_window.value_or(false) && window &&
                                    static_cast<int64_t>(i) >= first.value_or(kDefaultFirst);
    if (!slides) continue;
    if (!use_window.value_or(false)) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("layer_types has '{}', but use_sliding_window is not true",
                              kSlidingAttention),
                  "use_sliding_window");
    }
    if (!window) return fields.Missing("sliding_window");
    config.spec.layers[i].attention.span.window = static_cast<int32_t>(*window);
  }
  return {};
}

Result<std::vector<bool>> ReadRopeLayers(const JsonFields& fields, const ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto given, fields.Integers("no_rope_layers", 0, 1));
  ASSIGN_OR_RETURN(const auto interval,
                   fields.Integer("no_rope_layer_interval", 1, kMaxConfigLayers));
  constexpr int64_t kDefaultInterval = 4;
  std::vector<bool> rope;
  if (given && !given->empty()) {
    if (static_cast<int64_t>(given->size()) != config.num_hidden_layers) {
      return fields.Bad(
          "no_rope_layers",
          fmt::format("a list of num_hidden_layers {} numbers", config.num_hidden_layers),
          *fields.Given("no_rope_layers"));
    }
    for (const int64_t flag : *given) rope.push_back(flag == 1);
    return rope;
  }
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    rope.push_back((i + 1) % interval.value_or(kDefaultInterval) != 0);
  return rope;
}

Result<bool> ReadRopeBlocks(const JsonFields& fields, double default_local_theta,
                            ModelConfig& config, RopeConfig& local) {
  ASSIGN_OR_RETURN(const json::Value* block, fields.Object("rope_parameters"));
  if (block == nullptr || block->Find(kFullAttention) == nullptr) return false;
  const JsonFields blocks(*block, "rope_parameters.");
  ASSIGN_OR_RETURN(const json::Value* full, blocks.Object(kFullAttention));
  ASSIGN_OR_RETURN(const json::Value* sliding, blocks.Object(kSlidingAttention));
  if (full == nullptr) return blocks.Missing(kFullAttention);
  if (sliding == nullptr) return blocks.Missing(kSlidingAttention);
  const json::Value around(
      json::Value::Object{{"max_position_embeddings", config.max_position_embeddings}});
  ASSIGN_OR_RETURN(config.rope, ParseRopeBlock(around, *full, "rope_parameters.full_attention",
                                               config.rope.theta));
  ASSIGN_OR_RETURN(local, ParseRopeBlock(around, *sliding, "rope_parameters.sliding_attention",
                                         default_local_theta));
  RETURN_IF_ERROR(RefusePartialRope(config.rope, "rope_parameters.full_attention"));
  RETURN_IF_ERROR(RefusePartialRope(local, "rope_parameters.sliding_attention"));
  if (local.scaling && local.scaling->attention_factor != 1) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("rope_parameters.sliding_attention.rope_type '{}' is not supported in "
                            "layers that see a window",
                            RopeKindName(local.scaling->kind)),
                "rope_parameters.sliding_attention.rope_type");
  }
  return true;
}

Result<std::vector<bool>> ReadSparseLayers(const JsonFields& fields, const ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto step, fields.Integer("decoder_sparse_step", 1, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const auto dense, ReadLayerSet(fields, config, "mlp_only_layers"));
  std::vector<bool> sparse;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    sparse.push_back((i + 1) % step.value_or(1) == 0 &&
                     !(dense && (*dense)[static_cast<size_t>(i)]));
  }
  return sparse;
}

Result<std::optional<std::vector<bool>>> ReadLayerSet(const JsonFields& fields,
                                                      const ModelConfig& config,
                                                      std::string_view name) {
  ASSIGN_OR_RETURN(const auto indices, fields.Integers(name, 0, config.num_hidden_layers - 1));
  if (!indices) return std::nullopt;
  std::vector<bool> flags(static_cast<size_t>(config.num_hidden_layers));
  for (const int64_t index : *indices) flags[static_cast<size_t>(index)] = true;
  return flags;
}

Status ReadExpertCounts(const JsonFields& fields, std::optional<int64_t> default_top_k,
                        MoeSpec& moe) {
  constexpr int64_t kMaxExperts = 4096;
  // transformers 5 calls it num_local_experts in every family.
  ASSIGN_OR_RETURN(auto count, fields.Integer("num_experts", 1, kMaxExperts));
  if (!count) {
    ASSIGN_OR_RETURN(count, fields.Integer("num_local_experts", 1, kMaxExperts));
  }
  if (!count) return fields.Missing("num_local_experts");
  moe.num_experts = *count;
  ASSIGN_OR_RETURN(auto top_k, fields.Integer("num_experts_per_tok", 1, moe.num_experts));
  if (!top_k) top_k = default_top_k;
  if (!top_k) return fields.Missing("num_experts_per_tok");
  moe.top_k = *top_k;
  return {};
}

Status CheckHeadWidth(int64_t head_dim, const char* key) {
  if (head_dim >= 32 && head_dim <= kernels::kMaxHeadDim && head_dim % 8 == 0) return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{} {} is not supported; supported are multiples of 8 from 32 to {}", key,
                          head_dim, kernels::kMaxHeadDim),
              key);
}

}  // namespace sluice
