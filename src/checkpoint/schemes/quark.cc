// Reads Quark's quantization_config with quant_method "quark". It has settings for all layers, for
// patterns of layer names, and for layer types.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/log.h"
#include "checkpoint/schemes/linear_layout.h"
#include "checkpoint/schemes/module_pattern.h"
#include "checkpoint/schemes/settings.h"

namespace sluice {
namespace {

// How one tensor of a layer is quantized.
struct TensorSpec {
  enum class Kind { kNone, kFp8PerTensor, kFp8PerChannel, kMxfp4 } kind = Kind::kNone;
  bool is_dynamic = false;
};

struct LayerSettings {
  std::optional<LinearLayout> layout;  // nullopt means plain weights
  bool fp8_output = false;
};

Result<TensorSpec> ReadTensorSpec(const json::Value* value, const std::string& where,
                                  std::string_view name) {
  TensorSpec spec;
  if (value == nullptr || IsEmptySetting(*value)) return spec;
  constexpr const char* kSupported =
      "fp8_e4m3 (per_tensor, per_channel) or fp4 (per_group of 32, scale_format e8m0)";
  if (!value->is_object()) return UnsupportedSetting(where, name, *value, kSupported);
  const std::string inside = fmt::format("{}.{}", where, name);
  RETURN_IF_ERROR(
      CheckKeys(*value, inside,
                {"dtype", "qscheme", "is_dynamic", "symmetric", "ch_axis", "group_size",
                 "block_size", "observer_cls", "round_method", "scale_type", "scale_format",
                 "scale_calculation_mode", "mx_element_dtype", "zero_point_type", "is_scale_quant",
                 "enable_buffer_reuse", "max_input_numel"}));
  RETURN_IF_ERROR(CheckBool(*value, inside, "symmetric", true));
  RETURN_IF_ERROR(CheckString(*value, inside, "round_method", {"half_even"}));
  RETURN_IF_ERROR(CheckString(*value, inside, "scale_type", {"float"}));
  RETURN_IF_ERROR(CheckEmpty(*value, inside, "is_scale_quant",
                             "scales that are quantized themselves are not implemented"));
  RETURN_IF_ERROR(CheckEmpty(*value, inside, "mx_element_dtype", "the type is given in dtype"));
  RETURN_IF_ERROR(CheckEmpty(*value, inside, "block_size", "blocks are not implemented"));
  const JsonFields fields(*value, inside + ".");
  ASSIGN_OR_RETURN(const auto dtype, fields.String("dtype"));
  ASSIGN_OR_RETURN(const auto qscheme, fields.String("qscheme"));
  ASSIGN_OR_RETURN(const auto is_dynamic, fields.Bool("is_dynamic"));
  ASSIGN_OR_RETURN(const auto group_size, fields.Integer("group_size", 0, 1 << 20));
  ASSIGN_OR_RETURN(const auto axis, fields.Integer("ch_axis", -8, 8));
  if (!dtype) return fields.Missing("dtype");
  spec.is_dynamic = is_dynamic.value_or(false);
  if (*dtype == "fp8_e4m3" && (qscheme == "per_tensor" || !qscheme)) {
    spec.kind = TensorSpec::Kind::kFp8PerTensor;
  } else if (*dtype == "fp8_e4m3" && (qscheme == "per_channel" || qscheme == "per_token")) {
    spec.kind = TensorSpec::Kind::kFp8PerChannel;
  } else if (*dtype == "fp4" && qscheme == "per_group") {
    if (group_size != 32) {
      return UnsupportedSetting(inside, "group_size",
                                group_size ? json::Value(*group_size) : json::Value(), "32");
    }
    if (axis && *axis != -1 && *axis != 1)
      return UnsupportedSetting(inside, "ch_axis", json::Value(*axis), "-1");
    RETURN_IF_ERROR(CheckString(*value, inside, "scale_format", {"e8m0"}));
    // The way in which input scales are computed at run time affects results. Weight scales are
    // stored.
    if (spec.is_dynamic)
      RETURN_IF_ERROR(CheckString(*value, inside, "scale_calculation_mode", {"even"}));
    spec.kind = TensorSpec::Kind::kMxfp4;
  } else {
    return UnsupportedSetting(where, name, *value, kSupported);
  }
  return spec;
}

Result<ActivationFormat> InputsOf(const TensorSpec& input, const json::Value& entry,
                                  const std::string& where) {
  using Kind = ActivationFormat::Kind;
  switch (input.kind) {
    case TensorSpec::Kind::kNone: return ActivationFormat{};
    case TensorSpec::Kind::kFp8PerTensor:
      if (!input.is_dynamic) return ActivationFormat{.kind = Kind::kFp8Static};
      break;
    case TensorSpec::Kind::kFp8PerChannel:
      if (input.is_dynamic) return ActivationFormat{.kind = Kind::kFp8PerToken};
      break;
    case TensorSpec::Kind::kMxfp4:
      if (input.is_dynamic) return ActivationFormat{.kind = Kind::kMxfp4, .group_size = 32};
      break;
  }
  return UnsupportedSetting(where, "input_tensors", entry,
                            "static per_tensor or dynamic per_channel (a token) fp8_e4m3, dynamic "
                            "fp4, or null");
}

Result<LayerSettings> ReadLayer(const json::Value& value, const std::string& where) {
  if (!value.is_object()) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{} must be an object, found {}", where, ShortText(value)), where);
  }
  RETURN_IF_ERROR(CheckKeys(
      value, where, {"weight", "input_tensors", "output_tensors", "bias", "target_device"}));
  RETURN_IF_ERROR(CheckEmpty(value, where, "bias", "quantized biases are not implemented"));
  ASSIGN_OR_RETURN(const TensorSpec weight, ReadTensorSpec(value.Find("weight"), where, "weight"));
  ASSIGN_OR_RETURN(const TensorSpec input,
                   ReadTensorSpec(value.Find("input_tensors"), where, "input_tensors"));
  ASSIGN_OR_RETURN(const TensorSpec output,
                   ReadTensorSpec(value.Find("output_tensors"), where, "output_tensors"));
  LayerSettings settings;
  if (output.kind != TensorSpec::Kind::kNone) {
    if (output.kind != TensorSpec::Kind::kFp8PerTensor || output.is_dynamic) {
      return UnsupportedSetting(where, "output_tensors", *value.Find("output_tensors"),
                                "static per_tensor fp8_e4m3 (of keys and values) or null");
    }
    settings.fp8_output = true;
  }
  if (weight.kind == TensorSpec::Kind::kNone) return settings;
  if (weight.is_dynamic)
    return UnsupportedSetting(where, "weight", *value.Find("weight"), "is_dynamic false");
  static const json::Value kNothing;
  const json::Value* inputs = value.Find("input_tensors");
  LinearLayout layout = weight.kind == TensorSpec::Kind::kFp8PerTensor    ? Fp8PerTensorLayout()
                        : weight.kind == TensorSpec::Kind::kFp8PerChannel ? Fp8PerRowLayout()
                                                                          : Mxfp4Layout();
  layout.format.scale_type =
      weight.kind == TensorSpec::Kind::kMxfp4 ? ElementType::kF8E8M0 : ElementType::kBF16;
  ASSIGN_OR_RETURN(layout.activations,
                   InputsOf(input, inputs == nullptr ? kNothing : *inputs, where));
  layout.input_scales.clear();
  if (layout.activations.kind == ActivationFormat::Kind::kFp8Static)
    layout.input_scales = {"input_scale"};
  settings.layout = std::move(layout);
  return settings;
}

class Quark : public PlannedScheme {
 public:
  struct Entry {
    ModuleList modules;
    LayerSettings settings;
  };

  Quark(const SchemeSource& source, bool fp8_kv, LayerSettings global, std::vector<Entry> layers,
        ModuleList excluded)
      : PlannedScheme(source.plain_type, fp8_kv),
        global_(std::move(global)),
        layers_(std::move(layers)),
        excluded_(std::move(excluded)) {}

  std::string Name() const override {
    const LinearLayout* layout = global_.layout ? &*global_.layout : nullptr;
    for (const Entry& entry : layers_) {
      if (layout == nullptr && entry.settings.layout) layout = &*entry.settings.layout;
    }
    return layout == nullptr ? "Quark, plain weights" : "Quark " + layout->name;
  }
  std::string_view Method() const override { return "quark"; }

  // Settings by pattern take precedence over those for all layers.
  const LayerSettings& SettingsOf(std::string_view module) const {
    for (const Entry& entry : layers_) {
      if (entry.modules.Contains(module)) return entry.settings;
    }
    return global_;
  }

 protected:
  ModulePlan PlanOf(std::string_view module) const override {
    const LayerSettings& settings = SettingsOf(module);
    return {settings.layout ? &*settings.layout : nullptr, excluded_.Contains(module)};
  }

 private:
  LayerSettings global_;
  std::vector<Entry> layers_;
  ModuleList excluded_;
};

Status CheckExport(const json::Value& block, const std::string& where, bool& has_kv_group) {
  const json::Value* exported = block.Find("export");
  if (exported == nullptr || IsEmptySetting(*exported)) return {};
  if (!exported->is_object()) return UnsupportedSetting(where, "export", *exported, "an object");
  const std::string inside = where + ".export";
  RETURN_IF_ERROR(CheckKeys(
      *exported, inside,
      {"kv_cache_group", "min_kv_scale", "pack_method", "weight_format", "weight_merge_groups"}));
  RETURN_IF_ERROR(CheckString(*exported, inside, "weight_format", {"real_quantized"}));
  RETURN_IF_ERROR(CheckString(*exported, inside, "pack_method", {"reorder", "order"}));
  const json::Value* group = exported->Find("kv_cache_group");
  if (group == nullptr || IsEmptySetting(*group)) return {};
  RETURN_IF_ERROR(JsonFields(*exported, inside + ".").Strings("kv_cache_group"));
  has_kv_group = true;
  return {};
}

// Accepts algorithms that only changed the weights. Any other algorithm may change the computation
// at run time and is refused.
Status CheckAlgorithms(const json::Value& block, const std::string& where) {
  const json::Value* algorithms = block.Find("algo_config");
  if (algorithms == nullptr || IsEmptySetting(*algorithms)) return {};
  const auto check = [&](const json::Value& algorithm) -> Status {
    constexpr std::array<std::string_view, 4> kOfWeightsAlone = {"gptq", "awq", "smooth",
                                                                 "autosmoothquant"};
    const json::Value* name = algorithm.Find("name");
    if (name != nullptr && name->is_string() &&
        std::find(kOfWeightsAlone.begin(), kOfWeightsAlone.end(), AsciiLower(name->as_string())) !=
            kOfWeightsAlone.end()) {
      return {};
    }
    return UnsupportedSetting(where, "algo_config", algorithm,
                              "gptq, awq, smooth, autosmoothquant or null");
  };
  if (!algorithms->is_array()) return check(*algorithms);
  for (const json::Value& algorithm : algorithms->as_array()) RETURN_IF_ERROR(check(algorithm));
  return {};
}

}  // namespace

SchemeResult ReadQuark(const SchemeSource& source) {
  const QuantizationSettings& settings = source.config ? *source.config : *source.sidecar;
  const json::Value& block = settings.block;
  const std::string& where = settings.where;
  RETURN_IF_ERROR(
      CheckKeys(block, where,
                {"quant_method", "quant_mode", "global_quant_config", "layer_quant_config",
                 "layer_type_quant_config", "kv_cache_quant_config", "exclude", "algo_config",
                 "softmax_quant_spec", "export", "kv_cache_post_rope", "version"}));
  bool has_kv_group = false;
  RETURN_IF_ERROR(CheckExport(block, where, has_kv_group));
  RETURN_IF_ERROR(CheckAlgorithms(block, where));
  if (const json::Value* softmax = block.Find("softmax_quant_spec");
      softmax != nullptr && !IsEmptySetting(*softmax)) {
    LOG_WARNING("checkpoint",
                "{}.softmax_quant_spec is not applied: attention probabilities are "
                "not rounded",
                where);
  }
  const JsonFields fields(block, where + ".");
  LayerSettings global;
  ASSIGN_OR_RETURN(const json::Value* all, fields.Object("global_quant_config"));
  if (all != nullptr) {
    ASSIGN_OR_RETURN(global, ReadLayer(*all, where + ".global_quant_config"));
  }
  std::vector<Quark::Entry> layers;
  ASSIGN_OR_RETURN(const json::Value* by_pattern, fields.Object("layer_quant_config"));
  if (by_pattern != nullptr) {
    for (const auto& [pattern, value] : by_pattern->as_object()) {
      const std::string inside = fmt::format("{}.layer_quant_config.{}", where, pattern);
      Quark::Entry entry;
      RETURN_IF_ERROR(entry.modules.Add(pattern, ModuleList::Syntax::kRegexPrefix));
      ASSIGN_OR_RETURN(entry.settings, ReadLayer(value, inside));
      layers.push_back(std::move(entry));
    }
  }
  ASSIGN_OR_RETURN(const json::Value* by_type, fields.Object("layer_type_quant_config"));
  if (by_type != nullptr) {
    for (const auto& [type, value] : by_type->as_object()) {
      const std::string name = AsciiLower(type);
      if (name.find("linear") == std::string::npos) {
        return UnsupportedSetting(where, "layer_type_quant_config", json::Value(type),
                                  "linear layers alone");
      }
      ASSIGN_OR_RETURN(global,
                       ReadLayer(value, fmt::format("{}.layer_type_quant_config.{}", where, type)));
    }
  }
  ModuleList excluded;
  ASSIGN_OR_RETURN(const auto names, fields.Strings("exclude"));
  if (names) RETURN_IF_ERROR(excluded.Add(*names, ModuleList::Syntax::kRegexPrefix));
  ASSIGN_OR_RETURN(const json::Value* kv, fields.Object("kv_cache_quant_config"));
  if (kv != nullptr) {
    for (const auto& [pattern, value] : kv->as_object()) {
      ASSIGN_OR_RETURN(
          const LayerSettings layer,
          ReadLayer(value, fmt::format("{}.kv_cache_quant_config.{}", where, pattern)));
      has_kv_group = has_kv_group || layer.fp8_output;
    }
  }
  bool fp8_kv = has_kv_group;
  for (const Quark::Entry& entry : layers) {
    fp8_kv = fp8_kv || (entry.settings.fp8_output &&
                        entry.modules.Contains("model.layers.0.self_attn.k_proj"));
  }
  return std::make_shared<Quark>(source, fp8_kv, std::move(global), std::move(layers),
                                 std::move(excluded));
}

}  // namespace sluice
