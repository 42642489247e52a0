// quant_method "gptq": INT4 in words along the inputs, as AutoGPTQ and GPTQModel write it.
#include <algorithm>

#include <fmt/format.h>

#include "base/ascii.h"
#include "checkpoint/schemes/int4_settings.h"
#include "checkpoint/schemes/linear_layout.h"
#include "checkpoint/schemes/settings.h"
#include "tensor/stored_number.h"

namespace sluice {
namespace {

class Gptq : public PlannedScheme {
 public:
  Gptq(const SchemeSource& source, LinearLayout layout, bool quantizes_head,
       std::vector<std::string> only)
      : PlannedScheme(source.plain_type, /*wants_fp8_kv_cache=*/false),
        layout_(std::move(layout)),
        quantizes_head_(quantizes_head),
        only_(std::move(only)) {}

  std::string Name() const override { return "GPTQ " + Int4Text(layout_); }
  std::string_view Method() const override { return "gptq"; }

  // Writers add biases of zeros to layers that have none.
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
    return {&layout_, module == "lm_head" ? !quantizes_head_ : !in_list};
  }

 private:
  LinearLayout layout_;
  bool quantizes_head_;
  std::vector<std::string> only_;  // the ends of the names of quantized modules; empty: all
};

// modules_in_block_to_quantize: lists of lists of names.
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

// dynamic: settings of modules by pattern. Those that exclude modules ("-:...") need not be read:
// what is stored counts.
Status CheckDynamic(const json::Value& block, const std::string& where) {
  const json::Value* value = block.Find("dynamic");
  if (value == nullptr || IsEmptySetting(*value)) return {};
  if (!value->is_object()) return UnsupportedSetting(where, "dynamic", *value, "an object");
  for (const auto& [pattern, settings] : value->as_object()) {
    if (pattern.starts_with("-:")) continue;
    return UnsupportedSetting(where + ".dynamic", pattern, settings,
                              "patterns that begin with '-:'; modules with settings of their own "
                              "are not implemented");
  }
  return {};
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
  RETURN_IF_ERROR(CheckInt4Bits(block, where, {"bits"}));
  RETURN_IF_ERROR(CheckEmpty(block, where, "is_marlin_format",
                             "weights in the order of one GPU kernel are not read; use the "
                             "checkpoint of format gptq"));
  RETURN_IF_ERROR(CheckString(block, where, "pack_dtype", {"int32"}));
  RETURN_IF_ERROR(CheckDynamic(block, where));
  bool is_v2 = false;
  for (const char* key : {"checkpoint_format", "format"}) {
    RETURN_IF_ERROR(CheckString(block, where, key, {"gptq", "gptq_v2"}));
    ASSIGN_OR_RETURN(const auto format, fields.String(key));
    is_v2 = is_v2 || (format && AsciiLower(*format) == "gptq_v2");
  }
  ASSIGN_OR_RETURN(const int64_t group_size, ReadInt4GroupSize(block, where, {"group_size"}));
  ASSIGN_OR_RETURN(const auto desc_act, fields.Bool("desc_act"));
  ASSIGN_OR_RETURN(const auto symmetric, fields.Bool("sym"));
  ASSIGN_OR_RETURN(const auto head, fields.Bool("lm_head"));
  ASSIGN_OR_RETURN(auto only, ReadQuantizedModules(block, where));
  const bool is_symmetric = symmetric.value_or(true);
  LinearLayout layout = Int4GroupLayout(group_size);
  layout.format.has_zero_points = !is_symmetric;
  layout.format.has_input_order = group_size > 0 && desc_act.value_or(false);
  layout.int4.all_zero_points_are_8 = is_symmetric;
  // The first format stores one less.
  layout.int4.zero_point_offset = is_v2 ? 0 : 1;
  layout.int4.group_index = "g_idx";
  return std::make_shared<Gptq>(source, std::move(layout), head.value_or(false), std::move(only));
}

}  // namespace sluice
