// Reads quant_method "gptq": INT4 or INT8 words that pack inputs, as AutoGPTQ and GPTQModel write
// them.
#include <algorithm>

#include <fmt/format.h>

#include "base/ascii.h"
#include "checkpoint/schemes/int4_settings.h"
#include "checkpoint/schemes/linear_layout.h"
#include "checkpoint/schemes/module_pattern.h"
#include "checkpoint/schemes/settings.h"
#include "tensor/stored_number.h"

namespace sluice {
namespace {

// An entry of "dynamic": modules that match a pattern are excluded, or have their own settings.
struct DynamicEntry {
  ModuleList modules;
  bool is_excluded = false;
  LinearLayout layout;
};

class Gptq : public PlannedScheme {
 public:
  Gptq(const SchemeSource& source, LinearLayout layout, bool quantizes_head,
       std::vector<std::string> only, std::vector<DynamicEntry> dynamic)
      : PlannedScheme(source.plain_type, /*wants_fp8_kv_cache=*/false),
        layout_(std::move(layout)),
        quantizes_head_(quantizes_head),
        only_(std::move(only)),
        dynamic_(std::move(dynamic)) {}

  std::string Name() const override {
    std::string name = "GPTQ " + IntegerText(layout_);
    for (const DynamicEntry& entry : dynamic_) {
      const std::string other = entry.is_excluded ? "" : IntegerText(entry.layout);
      if (name.find(other) == std::string::npos) name += " + " + other;
    }
    return name;
  }
  std::string_view Method() const override { return "gptq"; }

  // Tools write biases of zeros for layers that have no bias.
  bool IsSuperfluous(const Checkpoint& checkpoint, std::string_view tensor) const override {
    if (PlannedScheme::IsSuperfluous(checkpoint, tensor)) return true;
    const StoredTensor* stored = checkpoint.Find(tensor);
    if (stored == nullptr || !tensor.ends_with(".bias")) return false;
    const auto bytes = stored->bytes();
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  }

 protected:
  ModulePlan PlanOf(std::string_view module) const override {
    const bool in_list =
        only_.empty() || std::any_of(only_.begin(), only_.end(), [&](const std::string& name) {
          return module.ends_with("." + name);
        });
    const bool is_excluded = module == "lm_head" ? !quantizes_head_ : !in_list;
    // The first matching entry applies.
    for (const DynamicEntry& entry : dynamic_) {
      if (!entry.modules.Contains(module)) continue;
      if (entry.is_excluded) return {&layout_, true};
      return {&entry.layout, is_excluded};
    }
    return {&layout_, is_excluded};
  }

 private:
  LinearLayout layout_;
  bool quantizes_head_;
  std::vector<std::string> only_;  // name suffixes of the quantized modules; empty: all modules
  std::vector<DynamicEntry> dynamic_;
};

// Settings that "dynamic" can override.
struct GptqSettings {
  int64_t bits = 4;
  int64_t group_size = -1;
  bool is_symmetric = true;
  bool has_order = false;
};

// Returns `settings`, overridden by the fields of the object.
Result<GptqSettings> ReadSettings(const json::Value& object, const std::string& where,
                                  GptqSettings settings) {
  const JsonFields fields(object, where + ".");
  if (object.Find("bits") != nullptr) {
    ASSIGN_OR_RETURN(settings.bits, ReadIntegerBits(object, where, {"bits"}, {4, 8}));
  }
  if (object.Find("group_size") != nullptr) {
    ASSIGN_OR_RETURN(settings.group_size, ReadInt4GroupSize(object, where, {"group_size"}));
  }
  ASSIGN_OR_RETURN(const auto symmetric, fields.Bool("sym"));
  ASSIGN_OR_RETURN(const auto order, fields.Bool("desc_act"));
  settings.is_symmetric = symmetric.value_or(settings.is_symmetric);
  settings.has_order = order.value_or(settings.has_order);
  if (settings.bits == 8 && !settings.is_symmetric) {
    return UnsupportedSetting(
        where, "sym", json::Value(false),
        "true for weights of 8 bits; only weights of 4 bits may have zero points");
  }
  return settings;
}

// `is_v2`: whether the format is "gptq_v2". Version 1 stores each zero point minus 1.
LinearLayout GptqLayout(const GptqSettings& settings, bool is_v2) {
  LinearLayout layout = Int4GroupLayout(settings.group_size);
  if (settings.bits == 8) {
    layout.name = "INT8";
    layout.format.type = ElementType::kI8;
  }
  layout.format.has_zero_points = !settings.is_symmetric;
  layout.format.has_input_order = settings.group_size > 0 && settings.has_order;
  layout.words.are_symmetric = settings.is_symmetric;
  layout.words.zero_point_offset = is_v2 ? 0 : 1;
  layout.words.group_index = "g_idx";
  return layout;
}

// Reads modules_in_block_to_quantize: lists of lists of names.
Result<std::vector<std::string>> ReadQuantizedModules(const json::Value& block,
                                                      const std::string& where) {
  constexpr std::string_view kKey = "modules_in_block_to_quantize";
  std::vector<std::string> names;
  const json::Value* value = block.Find(kKey);
  if (value == nullptr || IsEmptySetting(*value)) return names;
  const auto refused = [&] {
    return UnsupportedSetting(where, kKey, *value, "lists of names of modules");
  };
  if (!value->is_array()) return refused();
  for (const json::Value& entry : value->as_array()) {
    if (entry.is_string()) {
      names.push_back(entry.as_string());
      continue;
    }
    if (!entry.is_array()) return refused();
    for (const json::Value& name : entry.as_array()) {
      if (!name.is_string()) return refused();
      names.push_back(name.as_string());
    }
  }
  return names;
}

// Reads "dynamic", an object whose keys are regular expressions: "+:PATTERN" or "PATTERN" with
// settings for the matching modules, "-:PATTERN" for modules that are not quantized. Source:
// GPTQModel, quantization/config.py, dynamic_get.
Result<std::vector<DynamicEntry>> ReadDynamic(const json::Value& block, const std::string& where,
                                              const GptqSettings& settings, bool is_v2) {
  std::vector<DynamicEntry> entries;
  const json::Value* value = block.Find("dynamic");
  if (value == nullptr || IsEmptySetting(*value)) return entries;
  if (!value->is_object()) return UnsupportedSetting(where, "dynamic", *value, "an object");
  for (const auto& [key, own] : value->as_object()) {
    std::string_view pattern = key;
    DynamicEntry entry;
    entry.is_excluded = pattern.starts_with("-:");
    if (entry.is_excluded || pattern.starts_with("+:")) pattern.remove_prefix(2);
    const std::string inside = fmt::format("{}.dynamic.{}", where, key);
    Status added =
        entry.modules.Add("re:" + std::string(pattern), ModuleList::Syntax::kRegexPrefix);
    // An unsupported exclusion can be ignored, because the stored tensors also show which modules
    // are not quantized.
    if (!added && entry.is_excluded) continue;
    if (!added) return tl::unexpected<Error>(std::move(added).error().In(inside));
    if (!entry.is_excluded) {
      if (!own.is_object()) return UnsupportedSetting(where + ".dynamic", key, own, "an object");
      RETURN_IF_ERROR(CheckKeys(own, inside,
                                {"bits", "group_size", "sym", "desc_act", "static_groups", "mse",
                                 "damp_percent", "damp_auto_increment", "act_group_aware"}));
      ASSIGN_OR_RETURN(const GptqSettings changed, ReadSettings(own, inside, settings));
      entry.layout = GptqLayout(changed, is_v2);
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

SchemeResult ReadGptq(const SchemeSource& source) {
  const QuantizationSettings& settings = source.config ? *source.config : *source.sidecar;
  const json::Value& block = settings.block;
  const std::string& where = settings.where;
  RETURN_IF_ERROR(CheckKeys(block, where,
                            {"quant_method",
                             "bits",
                             "group_size",
                             "desc_act",
                             "sym",
                             "checkpoint_format",
                             "format",
                             "pack_dtype",
                             "lm_head",
                             "dynamic",
                             "modules_in_block_to_quantize",
                             "static_groups",
                             "true_sequential",
                             "damp_percent",
                             "damp_auto_increment",
                             "is_marlin_format",
                             "dataset",
                             "tokenizer",
                             "backend",
                             "use_cuda_fp16",
                             "model_seqlen",
                             "block_name_to_quantize",
                             "module_name_preceding_first_block",
                             "batch_size",
                             "pad_token_id",
                             "use_exllama",
                             "disable_exllama",
                             "exllama_config",
                             "max_input_length",
                             "cache_block_outputs",
                             "mse",
                             "model_name_or_path",
                             "model_file_base_name",
                             "meta",
                             "act_group_aware",
                             "hessian",
                             "cache_examples_on_gpu",
                             "offload_to_disk",
                             "weight_only",
                             "quant_algo",
                             "version",
                             "_attn_implementation",
                             "_attn_implementation_internal",
                             "failsafe",
                             "foem",
                             "gptaq",
                             "moe",
                             "method"}));
  const JsonFields fields(block, where + ".");
  ASSIGN_OR_RETURN(const int64_t bits, ReadIntegerBits(block, where, {"bits"}, {4, 8}));
  ASSIGN_OR_RETURN(const int64_t group_size, ReadInt4GroupSize(block, where, {"group_size"}));
  ASSIGN_OR_RETURN(const GptqSettings common,
                   ReadSettings(block, where, {.bits = bits, .group_size = group_size}));
  RETURN_IF_ERROR(CheckEmpty(block, where, "is_marlin_format",
                             "weights in the layout of a GPU kernel are not supported; use the "
                             "checkpoint with format gptq"));
  RETURN_IF_ERROR(CheckString(block, where, "pack_dtype", {"int32"}));
  bool is_v2 = false;
  for (const char* key : {"checkpoint_format", "format"}) {
    RETURN_IF_ERROR(CheckString(block, where, key, {"gptq", "gptq_v2"}));
    ASSIGN_OR_RETURN(const auto format, fields.String(key));
    is_v2 = is_v2 || (format && AsciiLower(*format) == "gptq_v2");
  }
  ASSIGN_OR_RETURN(const auto head, fields.Bool("lm_head"));
  ASSIGN_OR_RETURN(auto only, ReadQuantizedModules(block, where));
  ASSIGN_OR_RETURN(auto dynamic, ReadDynamic(block, where, common, is_v2));
  return std::make_shared<Gptq>(source, GptqLayout(common, is_v2), head.value_or(false),
                                std::move(only), std::move(dynamic));
}

}  // namespace sluice
