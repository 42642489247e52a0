#include "checkpoint/layer_config.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json_fields.h"
#include "checkpoint/model_config.h"

namespace sluice {
namespace {

constexpr int64_t kMaxPositions = int64_t{1} << 31;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 4096;

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";
constexpr const char* kChunked = "chunked_attention";

// layer_types, one for each layer, of `kinds` only; nullopt where not given.
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

Status RefuseSlidingWindow(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto sliding, fields.Bool("use_sliding_window"));
  if (!sliding.value_or(false)) return {};
  return Fail(ErrorCode::kUnsupported,
              "use_sliding_window true is not supported by this architecture",
              "use_sliding_window");
}

// Indices of layers, as a set of flags.
Result<std::optional<std::vector<bool>>> ReadLayerSet(const JsonFields& fields,
                                                      const ModelConfig& config,
                                                      std::string_view name) {
  ASSIGN_OR_RETURN(const auto indices, fields.Integers(name, 0, config.num_hidden_layers - 1));
  if (!indices) return std::nullopt;
  std::vector<bool> flags(static_cast<size_t>(config.num_hidden_layers));
  for (const int64_t index : *indices) flags[static_cast<size_t>(index)] = true;
  return flags;
}

Status ReadExpertCounts(const JsonFields& fields, std::optional<int64_t> default_per_token,
                        ExpertsConfig& experts) {
  // transformers 5 calls it num_local_experts in every family.
  ASSIGN_OR_RETURN(auto count, fields.Integer("num_experts", 1, kMaxExperts));
  if (!count) {
    ASSIGN_OR_RETURN(count, fields.Integer("num_local_experts", 1, kMaxExperts));
  }
  if (!count) return fields.Missing("num_local_experts");
  experts.num_experts = *count;
  ASSIGN_OR_RETURN(auto chosen, fields.Integer("num_experts_per_tok", 1, experts.num_experts));
  if (!chosen) chosen = default_per_token;
  if (!chosen) return fields.Missing("num_experts_per_tok");
  experts.experts_per_token = *chosen;
  return {};
}

}  // namespace

Status ReadFullAttention(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(RefuseSlidingWindow(fields));
  ASSIGN_OR_RETURN(const auto types, ReadLayerTypes(fields, config, {kFull}));
  config.layer_attention.assign(static_cast<size_t>(config.num_hidden_layers), {});
  return {};
}

// Source: transformers' Qwen2Config and Qwen3Config.
Status ReadSlidingAttention(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types, ReadLayerTypes(fields, config, {kFull, kSliding}));
  ASSIGN_OR_RETURN(const auto use_window, fields.Bool("use_sliding_window"));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxPositions));
  ASSIGN_OR_RETURN(const auto first, fields.Integer("max_window_layers", 0, kMaxLayers));
  constexpr int64_t kDefaultFirst = 28;
  config.layer_attention.assign(static_cast<size_t>(config.num_hidden_layers), {});
  for (size_t i = 0; i < config.layer_attention.size(); ++i) {
    const bool slides = types ? (*types)[i] == kSliding
                              : use_window.value_or(false) && window &&
                                    static_cast<int64_t>(i) >= first.value_or(kDefaultFirst);
    if (!slides) continue;
    if (!use_window.value_or(false)) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("layer_types has '{}', but use_sliding_window is not true", kSliding),
                  "use_sliding_window");
    }
    if (!window) return fields.Missing("sliding_window");
    config.layer_attention[i].window = *window;
  }
  return {};
}

// Source: transformers' MistralConfig. A window that is null is none; one that is absent is the
// library's default.
Status ReadMistralAttention(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types, ReadLayerTypes(fields, config, {kFull, kSliding}));
  ASSIGN_OR_RETURN(auto window, fields.Integer("sliding_window", 1, kMaxPositions));
  constexpr int64_t kDefaultWindow = 4096;
  if (!window && !fields.Has("sliding_window")) window = kDefaultWindow;
  config.layer_attention.assign(static_cast<size_t>(config.num_hidden_layers), {});
  for (size_t i = 0; i < config.layer_attention.size(); ++i) {
    const bool slides = types ? (*types)[i] == kSliding : window.has_value();
    if (!slides) continue;
    if (!window) return fields.Missing("sliding_window");
    config.layer_attention[i].window = *window;
  }
  return {};
}

// Source: transformers' Qwen3MoeConfig and Qwen3MoeDecoderLayer.
Status ReadQwen3MoeLayers(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  ExpertsConfig experts;
  RETURN_IF_ERROR(ReadExpertCounts(fields, std::nullopt, experts));
  ASSIGN_OR_RETURN(experts.intermediate_size,
                   fields.RequiredInteger("moe_intermediate_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  experts.normalize = normalize.value_or(false);
  ASSIGN_OR_RETURN(const auto step, fields.Integer("decoder_sparse_step", 1, kMaxLayers));
  ASSIGN_OR_RETURN(const auto dense, ReadLayerSet(fields, config, "mlp_only_layers"));
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    experts.layers.push_back((i + 1) % step.value_or(1) == 0 &&
                             !(dense && (*dense)[static_cast<size_t>(i)]));
  }
  config.experts = std::move(experts);
  return {};
}

namespace {

// Which layers rotate q and k. In no_rope_layers a 1 stands for a layer WITH rope.
Result<std::vector<bool>> ReadRopeLayers(const JsonFields& fields, const ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto given, fields.Integers("no_rope_layers", 0, 1));
  ASSIGN_OR_RETURN(const auto interval, fields.Integer("no_rope_layer_interval", 1, kMaxLayers));
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

Status ReadLlama4Attention(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<bool> rope, ReadRopeLayers(fields, config));
  ASSIGN_OR_RETURN(const auto types, ReadLayerTypes(fields, config, {kFull, kChunked}));
  ASSIGN_OR_RETURN(const auto chunk, fields.Integer("attention_chunk_size", 1, kMaxPositions));
  constexpr int64_t kDefaultChunk = 8192;
  config.layer_attention.clear();
  for (size_t i = 0; i < rope.size(); ++i) {
    const bool chunked = types ? (*types)[i] == kChunked : bool{rope[i]};
    config.layer_attention.push_back(
        {.rope = rope[i], .chunk = chunked ? chunk.value_or(kDefaultChunk) : 0});
  }
  ASSIGN_OR_RETURN(const auto qk_norm, fields.Bool("use_qk_norm"));
  config.use_qk_norm = qk_norm.value_or(true);
  // Older files hold a number here; whatever is not 0 or false is a yes.
  const json::Value* tuning = fields.Given("attn_temperature_tuning");
  if (tuning != nullptr && !tuning->is_bool() && !tuning->is_integer())
    return fields.Bad("attn_temperature_tuning", "true, false or an integer", *tuning);
  const bool tunes =
      tuning == nullptr || (tuning->is_bool() ? tuning->as_bool() : tuning->as_integer() != 0);
  constexpr double kDefaultFloor = 8192, kDefaultScale = 0.1;
  ASSIGN_OR_RETURN(const auto floor_scale, fields.Number("floor_scale", 1, 1e9));
  ASSIGN_OR_RETURN(const auto attn_scale, fields.Number("attn_scale", 0, 1e3));
  if (tunes) {
    config.temperature_tuning =
        TemperatureTuning{.floor_scale = floor_scale.value_or(kDefaultFloor),
                          .attn_scale = attn_scale.value_or(kDefaultScale)};
  }
  return {};
}

}  // namespace

// Source: transformers' Llama4TextConfig.
Status ReadLlama4Layers(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadLlama4Attention(fields, config));
  ExpertsConfig experts;
  RETURN_IF_ERROR(ReadExpertCounts(fields, 1, experts));
  experts.intermediate_size = config.intermediate_size;
  experts.has_shared = true;
  ASSIGN_OR_RETURN(const auto step, fields.Integer("interleave_moe_layer_step", 1, kMaxLayers));
  ASSIGN_OR_RETURN(const auto given, ReadLayerSet(fields, config, "moe_layers"));
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    experts.layers.push_back(given ? bool{(*given)[static_cast<size_t>(i)]}
                                   : (i + 1) % step.value_or(1) == 0);
  }
  ASSIGN_OR_RETURN(const auto dense, fields.Integer("intermediate_size_mlp", 1, kMaxWidth));
  const bool has_dense =
      std::find(experts.layers.begin(), experts.layers.end(), false) != experts.layers.end();
  if (has_dense && !dense) return fields.Missing("intermediate_size_mlp");
  config.intermediate_size = dense.value_or(config.intermediate_size);
  config.experts = std::move(experts);
  return {};
}

}  // namespace sluice
