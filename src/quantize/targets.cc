#include "quantize/targets.h"

#include <array>

#include <fmt/format.h>

namespace sluice {
namespace {

using Layout = DataFormat::ScaleLayout;
using Kind = ActivationFormat::Kind;
using json::Value;

constexpr const char* kProducer = "sluice";

// Settings as in the tools' own exports; tools/checkpoints/compare_exports.py compares them.
const std::array<QuantizeTarget, 7> kTargets = {{
    {.name = "modelopt-fp8",
     .format = {.type = ElementType::kF8E4M3, .scale_layout = Layout::kPerTensor},
     .activations = {.kind = Kind::kFp8Static},
     .input_scale = "input_scale",
     .rounds_quotient = true,
     .fuses_experts = true},
    {.name = "modelopt-nvfp4",
     .format = {.type = ElementType::kF4E2M1,
                .scale_layout = Layout::kPerGroup,
                .scale_type = ElementType::kF8E4M3,
                .group_size = 16,
                .has_second_scale = true},
     .activations = {.kind = Kind::kNvfp4, .group_size = 16},
     .second_scale = "weight_scale_2",
     .input_scale = "input_scale",
     .fuses_experts = true},
    {.name = "quark-fp8",
     .format = {.type = ElementType::kF8E4M3,
                .scale_layout = Layout::kPerTensor,
                .scale_type = ElementType::kBF16},
     .activations = {.kind = Kind::kFp8Static},
     .input_scale = "input_scale",
     .rounds_quotient = true},
    {.name = "quark-mxfp4",
     .format = {.type = ElementType::kF4E2M1,
                .scale_layout = Layout::kPerGroup,
                .scale_type = ElementType::kF8E8M0,
                .group_size = 32},
     .activations = {.kind = Kind::kMxfp4, .group_size = 32},
     .keeps_negative_zero = false},
    {.name = "block-fp8",
     .format = {.type = ElementType::kF8E4M3,
                .scale_layout = Layout::kPerBlock,
                .group_size = 128,
                .block_rows = 128},
     .activations = {.kind = Kind::kFp8PerGroup, .group_size = 128},
     .scale = "weight_scale_inv"},
    {.name = "fp8-dynamic",
     .format = {.type = ElementType::kF8E4M3,
                .scale_layout = Layout::kPerRow,
                .scale_type = ElementType::kBF16},
     .activations = {.kind = Kind::kFp8PerToken},
     .rounds_quotient = true,
     .scalar_rank = 1},
    {.name = "int8-w8a8",
     .format = {.type = ElementType::kI8,
                .scale_layout = Layout::kPerRow,
                .scale_type = ElementType::kBF16},
     .activations = {.kind = Kind::kInt8PerToken},
     .rounds_quotient = true,
     .scalar_rank = 1},
}};

Value Object(std::initializer_list<std::pair<std::string_view, Value>> members) {
  Value object{Value::Object{}};
  for (const auto& [key, value] : members) object.Set(key, value);
  return object;
}

Value Strings(const std::vector<std::string>& strings) {
  return Value(Value::Array(strings.begin(), strings.end()));
}

Value Producer() {
  return Object({{"name", "modelopt"}, {"version", kProducer}});
}

QuantizeConfig ModelOptConfig(const QuantizeTarget& target, bool fp8_kv_cache,
                              const std::vector<std::string>& excluded) {
  const bool is_nvfp4 = target.format.type == ElementType::kF4E2M1;
  Value spec = Object({{"dynamic", false}, {"num_bits", is_nvfp4 ? 4 : 8}, {"type", "float"}});
  if (is_nvfp4) spec.Set("group_size", 16);
  const char* algorithm = is_nvfp4 ? "NVFP4" : "FP8";
  QuantizeConfig config;
  config.config_block =
      Object({{"config_groups",
               Object({{"group_0", Object({{"input_activations", spec},
                                           {"weights", spec},
                                           {"targets", Value(Value::Array{"Linear"})}})}})},
              {"ignore", Strings(excluded)},
              {"quant_algo", algorithm}});
  if (fp8_kv_cache) {
    config.config_block.Set("kv_cache_scheme",
                            Object({{"dynamic", false}, {"num_bits", 8}, {"type", "float"}}));
  }
  config.config_block.Set("producer", Producer());
  config.config_block.Set("quant_method", "modelopt");
  Value quantization = Object(
      {{"quant_algo", algorithm}, {"kv_cache_quant_algo", fp8_kv_cache ? Value("FP8") : Value()}});
  if (is_nvfp4) quantization.Set("group_size", 16);
  quantization.Set("exclude_modules", Strings(excluded));
  config.sidecar = Object({{"producer", Producer()}, {"quantization", quantization}});
  return config;
}

QuantizeConfig QuarkConfig(const QuantizeTarget& target, bool fp8_kv_cache,
                           const std::vector<std::string>& excluded) {
  const bool is_mxfp4 = target.format.type == ElementType::kF4E2M1;
  const auto spec = [&](bool is_dynamic) {
    Value value = is_mxfp4 ? Object({{"dtype", "fp4"},
                                     {"qscheme", "per_group"},
                                     {"group_size", 32},
                                     {"ch_axis", -1},
                                     {"scale_format", "e8m0"},
                                     {"scale_calculation_mode", "even"},
                                     {"observer_cls", "PerBlockMXObserver"},
                                     {"symmetric", Value()}})
                           : Object({{"dtype", "fp8_e4m3"},
                                     {"qscheme", "per_tensor"},
                                     {"group_size", Value()},
                                     {"ch_axis", Value()},
                                     {"scale_format", Value()},
                                     {"scale_calculation_mode", Value()},
                                     {"observer_cls", "PerTensorMinMaxObserver"},
                                     {"symmetric", true}});
    value.Set("is_dynamic", is_dynamic);
    value.Set("round_method", "half_even");
    value.Set("scale_type", "float");
    return value;
  };
  const auto layer = [&](const Value& output) {
    return Object({{"bias", Value()},
                   {"input_tensors", spec(is_mxfp4)},
                   {"output_tensors", output},
                   {"target_device", Value()},
                   {"weight", spec(false)}});
  };
  Value by_pattern{Value::Object{}};
  Value::Array group;
  if (fp8_kv_cache) {
    const Value output = Object({{"dtype", "fp8_e4m3"},
                                 {"qscheme", "per_tensor"},
                                 {"is_dynamic", false},
                                 {"symmetric", true},
                                 {"round_method", "half_even"},
                                 {"observer_cls", "PerTensorMinMaxObserver"}});
    for (const char* pattern : {"*k_proj", "*v_proj"}) {
      by_pattern.Set(pattern, layer(output));
      group.emplace_back(pattern);
    }
  }
  QuantizeConfig config;
  config.config_block = Object({{"algo_config", Value()},
                                {"exclude", Strings(excluded)},
                                {"export", Object({{"kv_cache_group", Value(std::move(group))},
                                                   {"min_kv_scale", 0.0},
                                                   {"pack_method", "reorder"},
                                                   {"weight_format", "real_quantized"},
                                                   {"weight_merge_groups", Value()}})},
                                {"global_quant_config", layer(Value())},
                                {"kv_cache_quant_config", by_pattern},
                                {"layer_quant_config", by_pattern},
                                {"layer_type_quant_config", Value(Value::Object{})},
                                {"quant_method", "quark"},
                                {"quant_mode", "eager_mode"},
                                {"softmax_quant_spec", Value()}});
  return config;
}

QuantizeConfig BlockConfig(bool fp8_kv_cache, const std::vector<std::string>& excluded) {
  QuantizeConfig config;
  config.config_block = Object({{"activation_scheme", "dynamic"},
                                {"fmt", "e4m3"},
                                {"modules_to_not_convert", Strings(excluded)},
                                {"quant_method", "fp8"},
                                {"weight_block_size", Value(Value::Array{128, 128})}});
  if (fp8_kv_cache) config.config_block.Set("kv_cache_scheme", "static");
  return config;
}

QuantizeConfig CompressedTensorsConfig(const QuantizeTarget& target, bool fp8_kv_cache,
                                       const std::vector<std::string>& excluded) {
  const bool is_int8 = target.format.type == ElementType::kI8;
  const auto args = [&](const char* strategy, bool dynamic) {
    return Object({{"actorder", Value()},
                   {"block_structure", Value()},
                   {"dynamic", dynamic},
                   {"group_size", Value()},
                   {"num_bits", 8},
                   {"observer", dynamic ? Value() : Value("minmax")},
                   {"observer_kwargs", Value(Value::Object{})},
                   {"strategy", strategy},
                   {"symmetric", true},
                   {"type", is_int8 ? "int" : "float"}});
  };
  const char* format = is_int8 ? "int-quantized" : "float-quantized";
  QuantizeConfig config;
  config.config_block = Object(
      {{"config_groups", Object({{"group_0", Object({{"format", format},
                                                     {"input_activations", args("token", true)},
                                                     {"output_activations", Value()},
                                                     {"targets", Value(Value::Array{"Linear"})},
                                                     {"weights", args("channel", false)}})}})},
       {"format", format},
       {"global_compression_ratio", Value()},
       {"ignore", Strings(excluded)}});
  Value kv;
  if (fp8_kv_cache) {
    kv = args("tensor", false);
    kv.Set("type", "float");
  }
  config.config_block.Set("kv_cache_scheme", std::move(kv));
  config.config_block.Set("quant_method", "compressed-tensors");
  config.config_block.Set("quantization_status", "compressed");
  config.config_block.Set("sparsity_config", Value(Value::Object{}));
  config.config_block.Set("transform_config", Value(Value::Object{}));
  config.config_block.Set("version", "0.14.0");
  return config;
}

}  // namespace

std::span<const QuantizeTarget> QuantizeTargets() {
  return kTargets;
}

const QuantizeTarget* FindQuantizeTarget(std::string_view name) {
  for (const QuantizeTarget& target : kTargets) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

std::string QuantizeTargetNames() {
  std::string names;
  for (const QuantizeTarget& target : kTargets) {
    if (!names.empty()) names += "|";
    names += target.name;
  }
  return names;
}

QuantizeConfig WriteQuantizeConfig(const QuantizeTarget& target, bool fp8_kv_cache,
                                   const std::vector<std::string>& excluded) {
  if (target.name.starts_with("modelopt")) return ModelOptConfig(target, fp8_kv_cache, excluded);
  if (target.name.starts_with("quark")) return QuarkConfig(target, fp8_kv_cache, excluded);
  if (target.name == "block-fp8") return BlockConfig(fp8_kv_cache, excluded);
  return CompressedTensorsConfig(target, fp8_kv_cache, excluded);
}

KvScaleNames KvScaleNamesOf(const QuantizeTarget& target) {
  if (target.name.starts_with("modelopt"))
    return {.key = ".k_proj.k_scale", .value = ".v_proj.v_scale"};
  if (target.name.starts_with("quark")) {
    return {.key = ".k_proj.output_scale",
            .value = ".v_proj.output_scale",
            .type = ElementType::kBF16,
            .merged = true};
  }
  return {.key = ".k_scale", .value = ".v_scale", .type = ElementType::kBF16};
}

}  // namespace sluice
