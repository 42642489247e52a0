#include "models/family_fields.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/attention.h"
#include "kernels/convolution.h"

namespace sluice {
namespace {

// Used for families that rotate whole heads. As in transformers, unscaled frequencies are for whole
// heads, regardless of partial_rotary_factor. With scaling, that factor would reduce the number of
// frequencies, which would not match whole heads.
Status RefusePartialRope(const RopeConfig& rope, const char* name) {
  if (rope.partial_rotary_factor.value_or(1) == 1 || !rope.scaling) return {};
  const std::string field = fmt::format("{}.partial_rotary_factor", name);
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{} {} is not supported with rope_type {}, only 1", field,
                          *rope.partial_rotary_factor, RopeKindName(rope.scaling->kind)),
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

Status ReadRopeStyle(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto interleaved, fields.Bool("rope_interleave"));
  if (!interleaved.value_or(false)) return {};
  for (LayerSpec& layer : config.spec.layers)
    layer.attention.rope_style = kernels::RopeStyle::kInterleaved;
  return {};
}

Result<std::optional<int64_t>> ReadWantedWindow(const JsonFields& fields,
                                                std::optional<int64_t> absent) {
  ASSIGN_OR_RETURN(const auto given, fields.Bool("use_sliding_window"));
  const bool wanted = given.value_or(false);
  // transformers writes 0 for no window.
  ASSIGN_OR_RETURN(const auto window,
                   fields.Integer("sliding_window", wanted ? 1 : 0, kMaxConfigPositions));
  if (!wanted) return std::nullopt;
  return window || fields.Has("sliding_window") ? window : absent;
}

// Source: transformers' Qwen2Config and Qwen3Config.
Status ReadSlidingAttention(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto use_window, fields.Bool("use_sliding_window"));
  ASSIGN_OR_RETURN(const auto window, ReadWantedWindow(fields, kDefaultQwenWindow));
  ASSIGN_OR_RETURN(const auto first, fields.Integer("max_window_layers", 0, kMaxConfigLayers));
  constexpr int64_t kDefaultFirst = 28;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    const bool slides = types ? (*types)[i] == kSlidingAttention
                              : window && static_cast<int64_t>(i) >= first.value_or(kDefaultFirst);
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
  if (local.scaling &&
      (local.scaling->attention_factor != 1 || local.scaling->kind == RopeKind::kDynamic)) {
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

Status ReadExpertCounts(const JsonFields& fields, const ExpertDefaults& defaults, MoeSpec& moe) {
  std::optional<int64_t> count;
  for (const char* name : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (count) break;
    ASSIGN_OR_RETURN(count, fields.Integer(name, 1, kMaxConfigExperts));
  }
  if (!count) count = defaults.num_experts;
  if (!count) return fields.Missing("num_local_experts");
  moe.num_experts = *count;
  ASSIGN_OR_RETURN(auto top_k, fields.Integer(defaults.top_k_field, 1, kMaxConfigExperts));
  if (!top_k) top_k = defaults.top_k;
  if (!top_k) return fields.Missing(defaults.top_k_field);
  moe.top_k = *top_k;
  if (moe.top_k > moe.num_experts) {
    return fields.Bad(defaults.top_k_field,
                      fmt::format("at most the number of experts {}", moe.num_experts),
                      json::Value(moe.top_k));
  }
  if (!defaults.intermediate_size) return {};
  ASSIGN_OR_RETURN(const auto width, fields.Integer("moe_intermediate_size", 1, kMaxConfigWidth));
  moe.intermediate_size = width.value_or(*defaults.intermediate_size);
  return {};
}

Result<std::vector<bool>> ReadMlpLayerTypes(const JsonFields& fields, const ModelConfig& config,
                                            int64_t first_sparse) {
  ASSIGN_OR_RETURN(const auto types, fields.Strings("mlp_layer_types"));
  std::vector<bool> sparse;
  if (!types) {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) sparse.push_back(i >= first_sparse);
    return sparse;
  }
  const bool fits = static_cast<int64_t>(types->size()) == config.num_hidden_layers;
  for (const std::string& type : *types) sparse.push_back(type == kSparseMlp);
  if (fits && std::ranges::all_of(*types, [](const std::string& type) {
        return type == kSparseMlp || type == kDenseMlp;
      }))
    return sparse;
  return fields.Bad("mlp_layer_types",
                    fmt::format("a list of num_hidden_layers {} of {} and {}",
                                config.num_hidden_layers, kDenseMlp, kSparseMlp),
                    *fields.Given("mlp_layer_types"));
}

Result<std::vector<bool>> ReadWindowLayers(const JsonFields& fields, const WindowDefaults& defaults,
                                           ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto given, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  const bool is_null = !given && fields.Has("sliding_window");
  const int64_t window = given.value_or(defaults.window);
  std::vector<bool> slides;
  if (types) {
    for (const std::string& type : *types) slides.push_back(type == kSlidingAttention);
  } else {
    ASSIGN_OR_RETURN(const auto pattern,
                     fields.Integer(defaults.pattern_field, 1, kMaxConfigLayers));
    for (int64_t i = 0; i < config.num_hidden_layers; ++i)
      slides.push_back(!is_null && (i + 1) % pattern.value_or(defaults.pattern) != 0);
  }
  for (size_t i = 0; i < slides.size(); ++i) {
    if (!slides[i]) continue;
    if (is_null) return fields.Missing("sliding_window");
    config.spec.layers[i].attention.span.window = static_cast<int32_t>(window);
  }
  return slides;
}

Status ReadExpertGroups(const JsonFields& fields, const GroupDefaults& defaults, MoeSpec& moe) {
  ASSIGN_OR_RETURN(const auto groups, fields.Integer("n_group", 1, moe.num_experts));
  moe.num_groups = static_cast<int>(groups.value_or(defaults.groups));
  ASSIGN_OR_RETURN(const auto kept, fields.Integer("topk_group", 1, moe.num_groups));
  moe.kept_groups =
      static_cast<int>(kept.value_or(std::min<int64_t>(defaults.kept, moe.num_groups)));
  const int64_t of_group = moe.num_experts / moe.num_groups;
  if (moe.num_experts % moe.num_groups != 0 || (moe.num_groups > 1 && of_group < moe.group_best)) {
    return fields.Bad(
        "n_group",
        fmt::format("a divisor of n_routed_experts {} that leaves at least {} a group",
                    moe.num_experts, moe.group_best),
        json::Value(int64_t{moe.num_groups}));
  }
  if (moe.top_k <= moe.kept_groups * of_group) return {};
  return fields.Bad(
      "topk_group",
      fmt::format("a number of groups that hold num_experts_per_tok {} experts", moe.top_k),
      json::Value(int64_t{moe.kept_groups}));
}

Status ReplaceAttention(const std::vector<bool>& mixes, const MixerSpec& mixer,
                        ModelConfig& config) {
  for (size_t i = 0; i < mixes.size(); ++i) {
    if (!mixes[i]) continue;
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.num_heads = layer.attention.num_kv_heads = 0;
    layer.mixer = mixer;
  }
  if (config.spec.NumKvLayers() > 0) return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("no layer of {} has attention, which is not supported: at least one must",
                          config.architecture),
              "layer_types");
}

Status CheckMixer(const JsonFields& fields, const MixerKeys& keys, const MixerSpec& mixer) {
  if (mixer.conv_width < 1 || mixer.conv_width > kernels::kMostConvolutionWidth) {
    return fields.Bad(keys.width,
                      fmt::format("a number from 1 to {}", kernels::kMostConvolutionWidth),
                      json::Value(int64_t{mixer.conv_width}));
  }
  if (mixer.num_key_heads > 0 && mixer.num_heads % mixer.num_key_heads != 0) {
    return fields.Bad(keys.heads,
                      fmt::format("a multiple of {} {}", keys.key_heads, mixer.num_key_heads),
                      json::Value(int64_t{mixer.num_heads}));
  }
  return {};
}

// Source: transformers' Qwen3NextGatedDeltaNet.
Result<MixerSpec> ReadDeltaRule(const JsonFields& fields, const DeltaDefaults& defaults,
                                const ModelConfig& config) {
  constexpr int64_t kMostHeads = 4096, kWidestHead = 4096, kWidestConvolution = 1024;
  if (config.activation != Activation::kSilu) {
    return Fail(ErrorCode::kUnsupported,
                "a hidden_act other than silu is not supported in layers of linear attention",
                "hidden_act");
  }
  MixerSpec mixer{.kind = MixerSpec::Kind::kDeltaRule,
                  .module = "linear_attn",
                  .projections = MixerSpec::Projections::kByKeyHead,
                  .norm = MixerSpec::Norm::kOfHeads,
                  .norm_eps = static_cast<float>(config.rms_norm_eps)};
  const auto read = [&](const char* name, int64_t most, int64_t absent, int& number) -> Status {
    ASSIGN_OR_RETURN(const auto given, fields.Integer(name, 1, most));
    number = static_cast<int>(given.value_or(absent));
    return {};
  };
  RETURN_IF_ERROR(
      read("linear_num_key_heads", kMostHeads, defaults.key_heads, mixer.num_key_heads));
  RETURN_IF_ERROR(read("linear_num_value_heads", kMostHeads, defaults.heads, mixer.num_heads));
  RETURN_IF_ERROR(read("linear_key_head_dim", kWidestHead, defaults.key_dim, mixer.key_dim));
  RETURN_IF_ERROR(read("linear_value_head_dim", kWidestHead, defaults.head_dim, mixer.head_dim));
  RETURN_IF_ERROR(read("linear_conv_kernel_dim", kWidestConvolution, 4, mixer.conv_width));
  RETURN_IF_ERROR(CheckMixer(fields, {}, mixer));
  return mixer;
}

// Source: transformers' DeepseekV3TopkRouter and Glm4MoeTopkRouter.
Status ReadSigmoidRouter(const JsonFields& fields, const RouterDefaults& defaults, MoeSpec& moe) {
  moe.score = kernels::RouterScore::kSigmoid;
  RETURN_IF_ERROR(ReadExpertGroups(fields, {}, moe));
  ASSIGN_OR_RETURN(const auto width, fields.Integer("moe_intermediate_size", 1, kMaxConfigWidth));
  moe.intermediate_size = width.value_or(defaults.width);
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  moe.normalize = normalize.value_or(defaults.normalize);
  ASSIGN_OR_RETURN(const auto scale, fields.Number("routed_scaling_factor", 1e-6, 1e6));
  moe.weight_scale = static_cast<float>(scale.value_or(defaults.scale));
  return {};
}

Status ReadRopeAxes(const JsonFields& fields, const std::vector<int64_t>& absent, bool interleaves,
                    ModelConfig& config) {
  constexpr size_t kAxes = 3;
  std::vector<int64_t> sections = absent;
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    ASSIGN_OR_RETURN(const json::Value* block, fields.Object(name));
    if (block == nullptr) continue;
    const JsonFields rope(*block, std::string(name) + ".");
    ASSIGN_OR_RETURN(auto given, rope.Integers("mrope_section", 0, kMaxConfigWidth));
    if (given) sections = *std::move(given);
    if (sections.size() != kAxes) {
      return Fail(
          ErrorCode::kInvalidData,
          fmt::format("{}.mrope_section must be three numbers, found {}", name, sections.size()),
          fmt::format("{}.mrope_section", name));
    }
  }
  std::vector<int8_t> axes(static_cast<size_t>(config.rotary_dim / 2), 0);
  if (interleaves) {
    for (size_t axis = 1; axis < kAxes; ++axis) {
      const auto end = static_cast<size_t>(sections[axis]) * kAxes;
      for (size_t i = axis; i < std::min(end, axes.size()); i += kAxes)
        axes[i] = static_cast<int8_t>(axis);
    }
  } else {
    if (sections[0] + sections[1] + sections[2] != std::ssize(axes)) {
      return Fail(
          ErrorCode::kInvalidData,
          fmt::format("mrope_section {}, {}, {} must add up to {}, half of the numbers of a "
                      "head that are rotated",
                      sections[0], sections[1], sections[2], axes.size()),
          "rope_parameters.mrope_section");
    }
    const auto first = axes.begin() + sections[0];
    std::fill(first, first + sections[1], int8_t{1});
    std::fill(first + sections[1], axes.end(), int8_t{2});
  }
  config.spec.rope_axes = std::move(axes);
  return {};
}

Status RefuseField(const JsonFields& fields, const char* name, const char* what) {
  const json::Value* value = fields.Given(name);
  if (value == nullptr || (value->is_bool() && !value->as_bool()) ||
      (value->is_number() && value->as_double() == 0))
    return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{} {} is not supported: it requires {}", name, ShortText(*value), what),
              name);
}

Status CheckHeadWidth(int64_t head_dim, const char* key) {
  if (head_dim >= 2 && head_dim <= kernels::kMaxHeadDim && head_dim % 2 == 0) return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{} {} is not supported; supported are even numbers from 2 to {}", key,
                          head_dim, kernels::kMaxHeadDim),
              key);
}

}  // namespace sluice
