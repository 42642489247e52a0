// Reads compressed-tensors, as llm-compressor writes them: groups of settings, each with its target
// layers.
#include <algorithm>
#include <array>
#include <cstdio>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "base/log.h"
#include "checkpoint/schemes/int4_settings.h"
#include "checkpoint/schemes/linear_layout.h"
#include "checkpoint/schemes/module_pattern.h"
#include "checkpoint/schemes/settings.h"

namespace sluice {
namespace {

// The fields of "weights" or "input_activations".
struct QuantizationArgs {
  int64_t bits = 0;
  std::string type, strategy, dynamic;  // dynamic: "true", "false" or "local"
  bool symmetric = true;
  std::string order;  // value of "actorder" in lower case; "" if not set
  std::optional<int64_t> group_size;
  std::optional<std::pair<int, int>> block;

  std::string Text() const {
    return fmt::format("{} bits of type {}, strategy {}{}, dynamic {}", bits, type, strategy,
                       group_size ? fmt::format(" of {}", *group_size) : "", dynamic);
  }
};

Result<QuantizationArgs> ReadArgs(const json::Value& value, const std::string& where) {
  RETURN_IF_ERROR(CheckKeys(
      value, where,
      {"num_bits", "type", "strategy", "symmetric", "dynamic", "group_size", "block_structure",
       "actorder", "observer", "observer_kwargs", "scale_dtype", "zp_dtype"}));
  const JsonFields fields(value, where + ".");
  QuantizationArgs args;
  ASSIGN_OR_RETURN(const auto symmetric, fields.Bool("symmetric"));
  args.symmetric = symmetric.value_or(true);
  if (const json::Value* order = value.Find("actorder");
      order != nullptr && !IsEmptySetting(*order)) {
    RETURN_IF_ERROR(
        CheckString(value, where, "actorder", {"group", "dynamic", "weight", "static"}));
    args.order = AsciiLower(order->as_string());
  }
  ASSIGN_OR_RETURN(args.bits, fields.RequiredInteger("num_bits", 1, 64));
  ASSIGN_OR_RETURN(const auto type, fields.String("type"));
  ASSIGN_OR_RETURN(const auto strategy, fields.String("strategy"));
  ASSIGN_OR_RETURN(args.group_size, fields.Integer("group_size", -1, 1 << 20));
  args.type = AsciiLower(type.value_or("int"));
  args.strategy = AsciiLower(strategy.value_or(args.group_size ? "group" : "tensor"));
  const json::Value* dynamic = value.Find("dynamic");
  args.dynamic = dynamic == nullptr || IsEmptySetting(*dynamic) ? "false"
                 : dynamic->is_bool()                           ? "true"
                 : dynamic->is_string()                         ? AsciiLower(dynamic->as_string())
                                                                : json::Write(*dynamic);
  const json::Value* block = value.Find("block_structure");
  if (block != nullptr && !IsEmptySetting(*block)) {
    // Earlier versions write "128x128".
    int rows = 0, cols = 0;
    if (block->is_string()) {
      if (std::sscanf(block->as_string().c_str(), "%5dx%5d", &rows, &cols) != 2) rows = 0;
    } else if (block->is_array() && block->as_array().size() == 2 &&
               block->as_array()[0].is_integer() && block->as_array()[1].is_integer()) {
      const auto clamp = [](int64_t v) {
        return static_cast<int>(std::clamp<int64_t>(v, 0, 1 << 16));
      };
      rows = clamp(block->as_array()[0].as_integer());
      cols = clamp(block->as_array()[1].as_integer());
    }
    if (rows <= 0 || cols <= 0 || rows % 16 != 0 || cols % 16 != 0) {
      return UnsupportedSetting(where, "block_structure", *block,
                                "[rows, columns], multiples of 16");
    }
    args.block = {rows, cols};
  }
  return args;
}

// With the values "group" and "dynamic", groups consist of inputs sorted by importance. With
// "weight" and "static", that order was used only while rounding.
bool HasInputOrder(const QuantizationArgs& args) {
  return args.strategy == "group" && (args.order == "group" || args.order == "dynamic");
}

// INT8 weights with one scale per group of inputs.
LinearLayout Int8GroupLayout(const QuantizationArgs& args) {
  return {.name = "INT8",
          .format = {.type = ElementType::kI8,
                     .scale_layout = DataFormat::ScaleLayout::kPerGroup,
                     .scale_type = ElementType::kBF16,
                     .group_size = static_cast<int>(*args.group_size),
                     .has_input_order = HasInputOrder(args)}};
}

bool IsInt8Group(const QuantizationArgs& args) {
  const int64_t group_size = args.group_size.value_or(0);
  return args.type == "int" && args.bits == 8 && args.strategy == "group" && group_size > 0 &&
         group_size % 32 == 0;
}

// INT4 weights, optionally with zero points and an input order.
LinearLayout Int4WeightLayout(const QuantizationArgs& args) {
  const bool has_groups = args.strategy == "group";
  return {.name = "INT4",
          .format = {.type = ElementType::kInt4,
                     .scale_layout = has_groups ? DataFormat::ScaleLayout::kPerGroup
                                                : DataFormat::ScaleLayout::kPerRow,
                     .scale_type = ElementType::kBF16,
                     .group_size = has_groups ? static_cast<int>(*args.group_size) : 0,
                     .has_zero_points = !args.symmetric,
                     .has_input_order = HasInputOrder(args)},
          .data = "weight_packed",
          .is_in_words = true,
          .words = {.zero_points = args.symmetric ? "" : "weight_zero_point",
                    .group_index = has_groups ? "weight_g_idx" : "",
                    .shape = "weight_shape"}};
}

bool IsInt4Weight(const QuantizationArgs& args) {
  const int64_t group_size = args.group_size.value_or(-1);
  return args.type == "int" && args.bits == 4 &&
         ((args.strategy == "group" && group_size > 0 && group_size % 32 == 0) ||
          (args.strategy == "channel" && group_size <= 0));
}

// Checks that a format without zero points and without input order has no tensors for them.
Status CheckPlainArgs(const QuantizationArgs& args, const std::string& where) {
  if (!args.symmetric) {
    return UnsupportedSetting(where, "symmetric", json::Value(false),
                              "true; only INT4 weights may have zero points");
  }
  if (!args.order.empty()) {
    return UnsupportedSetting(
        where, "actorder", json::Value(args.order),
        "none, because only groups of integers may have a different order of inputs");
  }
  return {};
}

Result<LinearLayout> WeightLayout(const QuantizationArgs& args, const std::string& where) {
  const bool is_float = args.type == "float";
  LinearLayout layout;
  if (args.dynamic == "false" && IsInt4Weight(args)) return Int4WeightLayout(args);
  if (args.bits != 4 || args.type != "int") {
    QuantizationArgs plain = args;
    if (IsInt8Group(args)) plain.order.clear();
    RETURN_IF_ERROR(CheckPlainArgs(plain, where + ".weights"));
  }
  if (args.dynamic != "false") {
    // Unsupported; handled below.
  } else if (is_float && args.bits == 8 && args.strategy == "tensor") {
    layout = Fp8PerTensorLayout();
  } else if (is_float && args.bits == 8 && args.strategy == "channel") {
    layout = Fp8PerRowLayout();
  } else if (is_float && args.bits == 8 && args.strategy == "block" && args.block) {
    layout = Fp8BlockLayout(args.block->first, args.block->second);
  } else if (is_float && args.bits == 4 && args.group_size == 16 &&
             args.strategy == "tensor_group") {
    layout = Nvfp4Layout();
    layout.second_scale = "weight_global_scale";
    layout.stores_divisors = true;
    layout.data = "weight_packed";
  } else if (is_float && args.bits == 4 && args.group_size == 32 && args.strategy == "group") {
    layout = Mxfp4Layout();
    layout.data = "weight_packed";
  } else if (args.type == "int" && args.bits == 8 &&
             (args.strategy == "channel" || args.strategy == "tensor")) {
    layout.name = "INT8";
    layout.format = {.type = ElementType::kI8,
                     .scale_layout = args.strategy == "channel"
                                         ? DataFormat::ScaleLayout::kPerRow
                                         : DataFormat::ScaleLayout::kPerTensor};
  } else if (IsInt8Group(args)) {
    layout = Int8GroupLayout(args);
  }
  if (layout.name.empty()) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{}.weights ({}) is not supported; supported are FP8 of strategy "
                    "tensor, channel or block, NVFP4 (4 bits, tensor_group of 16), MXFP4 "
                    "(4 bits, group of 32), INT8 of strategy channel, tensor or group, and INT4 of "
                    "strategy channel or group, groups of a multiple of 32; quantize the model "
                    "again in one "
                    "of these, or serve it without quantization",
                    where, args.Text()),
        where + ".weights");
  }
  // llm-compressor writes these scales in the element type of the model.
  if (layout.format.scale_layout != DataFormat::ScaleLayout::kPerGroup)
    layout.format.scale_type = ElementType::kBF16;
  layout.activations = {};
  layout.input_scales = {};
  return layout;
}

Status AddInputs(const QuantizationArgs& args, const std::string& where, LinearLayout& layout) {
  using Kind = ActivationFormat::Kind;
  const bool is_int8_weight = layout.format.type == ElementType::kI8;
  const bool is_float = args.type == "float" && !is_int8_weight;
  if (is_float && args.bits == 8 && args.strategy == "tensor" && args.dynamic == "false") {
    layout.activations = {.kind = Kind::kFp8Static};
    layout.input_scales = {"input_scale"};
  } else if (is_float && args.bits == 8 && args.strategy == "token" && args.dynamic == "true") {
    layout.activations = {.kind = Kind::kFp8PerToken};
  } else if (is_float && args.bits == 8 && args.strategy == "group" && args.dynamic == "true" &&
             args.group_size.value_or(0) > 0) {
    layout.activations = {.kind = Kind::kFp8PerGroup,
                          .group_size = static_cast<int>(*args.group_size)};
  } else if (is_float && args.bits == 4 && args.strategy == "tensor_group" &&
             args.group_size == 16 && args.dynamic == "local") {
    layout.activations = {.kind = Kind::kNvfp4, .group_size = 16};
    layout.input_scales = {"input_global_scale"};
    layout.stores_divisors = true;
  } else if (is_float && args.bits == 4 && args.strategy == "group" && args.group_size == 32 &&
             args.dynamic == "true") {
    layout.activations = {.kind = Kind::kMxfp4, .group_size = 32};
  } else if (args.type == "int" && args.bits == 8 && args.strategy == "token" &&
             args.dynamic == "true" && args.symmetric && is_int8_weight &&
             layout.format.scale_layout != DataFormat::ScaleLayout::kPerGroup) {
    layout.activations = {.kind = Kind::kInt8PerToken};
  } else if (args.type == "int" && args.bits == 8 && args.strategy == "tensor" &&
             args.dynamic == "false" && is_int8_weight) {
    layout.activations = {.kind = Kind::kInt8Static};
    layout.input_scales = {"input_scale"};
    layout.input_zero_point = "input_zero_point";
  } else {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{}.input_activations ({}) is not supported for {} weights; supported are FP8 "
                    "static per tensor, dynamic per token or per group, NVFP4 (tensor_group of 16, "
                    "dynamic local), MXFP4 (group of 32, dynamic) and, for INT8 weights, INT8 "
                    "dynamic per token (symmetric, weights without groups) or static per tensor",
                    where, args.Text(), layout.name),
        where + ".input_activations");
  }
  // A single flag states how both global scales are stored.
  if (layout.format.has_second_scale && layout.activations.kind == Kind::kFp8Static) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: NVFP4 weights with static FP8 inputs are not supported", where),
                where);
  }
  return {};
}

class CompressedTensors : public PlannedScheme {
 public:
  struct Group {
    LinearLayout layout;
    ModuleList targets;
    bool all_linear = false;  // whether the group targets the class "Linear"
  };

  CompressedTensors(const SchemeSource& source, bool fp8_kv, std::vector<Group> groups,
                    ModuleList ignored)
      : PlannedScheme(source.plain_type, fp8_kv),
        groups_(std::move(groups)),
        ignored_(std::move(ignored)) {}

  std::string Name() const override {
    std::vector<std::string> names;
    for (const Group& group : groups_) {
      std::string name = group.layout.is_in_words ? IntegerText(group.layout) : group.layout.name;
      if (group.layout.activations.kind == ActivationFormat::Kind::kNone) name += " weight-only";
      names.push_back(std::move(name));
    }
    return names.empty() ? "compressed-tensors, plain weights"
                         : fmt::format("compressed-tensors {}", fmt::join(names, " + "));
  }
  std::string_view Method() const override { return "compressed-tensors"; }

 protected:
  // A target by name takes precedence over a target by class.
  ModulePlan PlanOf(std::string_view module) const override {
    const LinearLayout* layout = nullptr;
    for (const Group& group : groups_) {
      if (group.targets.Contains(module)) {
        layout = &group.layout;
        break;
      }
      if (group.all_linear && layout == nullptr) layout = &group.layout;
    }
    return {layout, ignored_.Contains(module)};
  }

 private:
  std::vector<Group> groups_;
  ModuleList ignored_;
};

Status CheckFormat(const json::Value& object, const std::string& where) {
  return CheckString(
      object, where, "format",
      {"dense", "naive-quantized", "float-quantized", "int-quantized", "pack-quantized",
       "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision"});
}

// Reads whether codes share words: INT4 codes do ("pack-quantized"), INT8 codes may, others do not.
// `outer`: the whole configuration; its format applies to groups that specify none.
Status ReadPacked(const json::Value& group, std::string where, const json::Value& outer,
                  const std::string& outer_where, LinearLayout& layout) {
  const json::Value* format = group.Find("format");
  if (format == nullptr || !format->is_string()) {
    format = outer.Find("format");
    where = outer_where;
  }
  if (format == nullptr || !format->is_string()) return {};
  const bool is_packed = AsciiLower(format->as_string()) == "pack-quantized";
  const bool is_int4 = layout.format.type == ElementType::kInt4;
  if (is_packed && layout.format.type == ElementType::kI8) {
    layout.is_in_words = true;
    layout.data = "weight_packed";
    const bool has_groups = layout.format.group_size != 0;
    layout.words = {.group_index = has_groups ? "weight_g_idx" : "", .shape = "weight_shape"};
    return {};
  }
  if (layout.format.type == ElementType::kI8 && layout.format.has_input_order) {
    return UnsupportedSetting(where, "format", *format,
                              "pack-quantized for groups whose inputs are in a different order");
  }
  if (is_packed == is_int4) return {};
  return UnsupportedSetting(
      where, "format", *format,
      is_int4
          ? "pack-quantized for integers of 4 bits"
          : fmt::format(
                "a format other than pack-quantized for {} weights; pack-quantized is for integers",
                layout.name));
}

// The settings that a preset stands for, as they would be written in config_groups. Source:
// compressed-tensors, quantization/quant_scheme.py, PRESET_SCHEMES.
struct Preset {
  std::string_view name;
  std::string_view weights;
  std::string_view inputs;  // empty if inputs are not rounded
};
constexpr std::string_view kInt8Channels =
    R"({"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": true})";
constexpr std::string_view kInt8Tokens =
    R"({"num_bits": 8, "type": "int", "strategy": "token", "symmetric": true, "dynamic": true})";
constexpr std::string_view kInt4Groups =
    R"({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": true})";
constexpr std::string_view kNvfp4Weights =
    R"({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16})";
constexpr std::array kPresets = {
    Preset{"W8A16", kInt8Channels, ""},
    Preset{"W8A8", kInt8Channels, kInt8Tokens},
    Preset{"INT8", kInt8Channels, kInt8Tokens},
    Preset{"W4A16", kInt4Groups, ""},
    Preset{"W4A16_ASYM",
           R"({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128,
               "symmetric": false})",
           ""},
    Preset{"FP8", R"({"num_bits": 8, "type": "float", "strategy": "tensor"})",
           R"({"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": false})"},
    Preset{"FP8_DYNAMIC", R"({"num_bits": 8, "type": "float", "strategy": "channel"})",
           R"({"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true})"},
    Preset{"FP8_BLOCK",
           R"({"num_bits": 8, "type": "float", "strategy": "block",
               "block_structure": [128, 128]})",
           R"({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128,
               "dynamic": true})"},
    Preset{"NVFP4A16", kNvfp4Weights, ""},
    Preset{"NVFP4", kNvfp4Weights,
           R"({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
               "dynamic": "local"})"}};

// Expands a group that consists only of a list of targets. The group's name is the name of a
// preset.
Result<json::Value> ExpandPreset(const std::string& name, const json::Value& targets,
                                 const std::string& where) {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) {
    names.push_back(preset.name);
    if (AsciiLower(name) != AsciiLower(preset.name)) continue;
    json::Value group{json::Value::Object{}};
    group.Set("targets", targets);
    ASSIGN_OR_RETURN(json::Value weights, json::Parse(preset.weights));
    group.Set("weights", std::move(weights));
    if (!preset.inputs.empty()) {
      ASSIGN_OR_RETURN(json::Value inputs, json::Parse(preset.inputs));
      group.Set("input_activations", std::move(inputs));
    }
    return group;
  }
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{} lists targets, so its name must be a preset: expected one of {}",
                          where, fmt::join(names, ", ")),
              where);
}

Result<CompressedTensors::Group> ReadGroup(const json::Value& value, const std::string& where,
                                           const json::Value& outer,
                                           const std::string& outer_where) {
  RETURN_IF_ERROR(CheckKeys(
      value, where, {"targets", "weights", "input_activations", "output_activations", "format"}));
  RETURN_IF_ERROR(CheckFormat(value, where));
  RETURN_IF_ERROR(CheckEmpty(value, where, "output_activations",
                             "outputs of layers are not rounded by this program"));
  const JsonFields fields(value, where + ".");
  ASSIGN_OR_RETURN(const json::Value* weights, fields.Object("weights"));
  ASSIGN_OR_RETURN(const json::Value* inputs, fields.Object("input_activations"));
  if (weights == nullptr) return fields.Missing("weights");
  CompressedTensors::Group group;
  ASSIGN_OR_RETURN(const QuantizationArgs args, ReadArgs(*weights, where + ".weights"));
  ASSIGN_OR_RETURN(group.layout, WeightLayout(args, where));
  RETURN_IF_ERROR(ReadPacked(value, where, outer, outer_where, group.layout));
  if (inputs != nullptr) {
    ASSIGN_OR_RETURN(const QuantizationArgs input, ReadArgs(*inputs, where + ".input_activations"));
    // Static integer inputs may have a zero point.
    if (input.type != "int" || input.dynamic != "false")
      RETURN_IF_ERROR(CheckPlainArgs(input, where + ".input_activations"));
    RETURN_IF_ERROR(AddInputs(input, where, group.layout));
  }
  ASSIGN_OR_RETURN(const auto targets, fields.Strings("targets"));
  if (!targets || targets->empty()) return fields.Missing("targets");
  for (const std::string& target : *targets) {
    if (target == "Linear") {
      group.all_linear = true;
      continue;
    }
    auto added = group.targets.Add(target, ModuleList::Syntax::kRegexPrefix);
    if (!added) return tl::unexpected<Error>(std::move(added).error().In(where + ".targets"));
  }
  return group;
}

}  // namespace

SchemeResult ReadCompressedTensors(const SchemeSource& source) {
  const QuantizationSettings& settings = source.config ? *source.config : *source.sidecar;
  const json::Value& block = settings.block;
  const std::string& where = settings.where;
  RETURN_IF_ERROR(CheckKeys(block, where,
                            {"quant_method", "config_groups", "format", "ignore", "kv_cache_scheme",
                             "quantization_status", "global_compression_ratio", "sparsity_config",
                             "transform_config", "version"}));
  RETURN_IF_ERROR(CheckFormat(block, where));
  RETURN_IF_ERROR(
      CheckEmpty(block, where, "transform_config", "rotations of inputs are not implemented"));
  if (const json::Value* sparsity = block.Find("sparsity_config");
      sparsity != nullptr && !IsEmptySetting(*sparsity)) {
    if (!sparsity->is_object())
      return UnsupportedSetting(where, "sparsity_config", *sparsity, "none");
    const std::string inside = where + ".sparsity_config";
    RETURN_IF_ERROR(CheckString(*sparsity, inside, "format", {"dense"}));
  }
  const JsonFields fields(block, where + ".");
  std::vector<CompressedTensors::Group> groups;
  ASSIGN_OR_RETURN(const json::Value* config_groups, fields.Object("config_groups"));
  bool has_mxfp4 = false;
  if (config_groups != nullptr) {
    for (const auto& [name, stated] : config_groups->as_object()) {
      const std::string inside = fmt::format("{}.config_groups.{}", where, name);
      json::Value value = stated;
      if (stated.is_array()) {
        ASSIGN_OR_RETURN(value, ExpandPreset(name, stated, inside));
      }
      if (!value.is_object()) {
        return Fail(ErrorCode::kInvalidData,
                    fmt::format("{} must be an object, found {}", inside, ShortText(value)),
                    inside);
      }
      ASSIGN_OR_RETURN(auto group, ReadGroup(value, inside, block, where));
      has_mxfp4 = has_mxfp4 || group.layout.format.scale_type == ElementType::kF8E8M0;
      groups.push_back(std::move(group));
    }
  }
  ASSIGN_OR_RETURN(const auto version, fields.String("version"));
  if (has_mxfp4 && version && version->starts_with("0.13.")) {
    LOG_WARNING("checkpoint",
                "{}: compressed-tensors {} wrote MXFP4 scales that are 4 times too small; if the "
                "model's answers are nonsense, quantize it again with a later version",
                where, *version);
  }
  ModuleList ignored;
  ASSIGN_OR_RETURN(const auto names, fields.Strings("ignore"));
  if (names) {
    auto added = ignored.Add(*names, ModuleList::Syntax::kRegexPrefix);
    if (!added) return tl::unexpected<Error>(std::move(added).error().In(where + ".ignore"));
  }
  ASSIGN_OR_RETURN(const bool fp8_kv,
                   ReadKvCacheScheme(block.Find("kv_cache_scheme"), where, "kv_cache_scheme"));
  return std::make_shared<CompressedTensors>(source, fp8_kv, std::move(groups), std::move(ignored));
}

}  // namespace sluice
