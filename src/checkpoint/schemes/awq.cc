// Reads quant_method "awq": INT4 words that pack outputs, as AutoAWQ writes them.
#include <fmt/format.h>

#include "checkpoint/schemes/int4_settings.h"
#include "checkpoint/schemes/linear_layout.h"
#include "checkpoint/schemes/module_pattern.h"
#include "checkpoint/schemes/settings.h"

namespace sluice {
namespace {

class Awq : public PlannedScheme {
 public:
  Awq(const SchemeSource& source, LinearLayout layout, std::vector<std::string> excluded)
      : PlannedScheme(source.plain_type, /*wants_fp8_kv_cache=*/false),
        layout_(std::move(layout)),
        excluded_(std::move(excluded)) {}

  std::string Name() const override { return "AWQ " + IntegerText(layout_); }
  std::string_view Method() const override { return "awq"; }

 protected:
  // As in AutoAWQ, the head and modules whose name contains an excluded name are plain.
  ModulePlan PlanOf(std::string_view module) const override {
    bool excluded = module == "lm_head";
    for (const std::string& name : excluded_)
      excluded = excluded || module.find(name) != std::string_view::npos;
    return {&layout_, excluded};
  }

 private:
  LinearLayout layout_;
  std::vector<std::string> excluded_;
};

}  // namespace

SchemeResult ReadAwq(const SchemeSource& source) {
  const QuantizationSettings& settings = source.config ? *source.config : *source.sidecar;
  const json::Value& block = settings.block;
  const std::string& where = settings.where;
  RETURN_IF_ERROR(CheckKeys(block, where,
                            {"quant_method",
                             "bits",
                             "w_bit",
                             "group_size",
                             "q_group_size",
                             "zero_point",
                             "version",
                             "modules_to_not_convert",
                             "backend",
                             "do_fuse",
                             "fuse_max_seq_len",
                             "modules_to_fuse",
                             "exllama_config",
                             "pack_dtype",
                             "meta",
                             "format",
                             "checkpoint_format",
                             "desc_act",
                             "sym",
                             "lm_head",
                             "method"}));
  RETURN_IF_ERROR(ReadIntegerBits(block, where, {"bits", "w_bit"}, {4}));
  RETURN_IF_ERROR(CheckString(block, where, "version", {"gemm"}));
  RETURN_IF_ERROR(CheckString(block, where, "format", {"gemm"}));
  RETURN_IF_ERROR(CheckString(block, where, "checkpoint_format", {"gemm"}));
  RETURN_IF_ERROR(CheckString(block, where, "pack_dtype", {"int32"}));
  RETURN_IF_ERROR(CheckBool(block, where, "zero_point", true));
  RETURN_IF_ERROR(CheckBool(block, where, "desc_act", false));
  RETURN_IF_ERROR(CheckBool(block, where, "lm_head", false));
  ASSIGN_OR_RETURN(const int64_t group_size,
                   ReadInt4GroupSize(block, where, {"group_size", "q_group_size"}));
  ASSIGN_OR_RETURN(const auto excluded,
                   JsonFields(block, where + ".").Strings("modules_to_not_convert"));
  LinearLayout layout = Int4GroupLayout(group_size);
  layout.format.has_zero_points = true;
  layout.words.packing = Int4Packing::kOutputs;
  return std::make_shared<Awq>(source, std::move(layout),
                               excluded.value_or(std::vector<std::string>()));
}

}  // namespace sluice
