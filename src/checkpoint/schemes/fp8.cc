// Reads quant_method "fp8". Either one scale per block of 128 x 128, named weight_scale_inv
// (DeepSeek, Qwen); in DeepSeek V4 these scales are powers of two, and the experts are in MXFP4. Or
// one scale per tensor (AutoFP8, Quark's fp8 mode). Also reads quant_method "fbgemm_fp8" (Meta's
// Llama 3.1 405B FP8): one scale per row, and inputs scaled per token with an upper bound on their
// largest magnitude.
#include <limits>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/log.h"
#include "checkpoint/schemes/linear_layout.h"
#include "checkpoint/schemes/module_pattern.h"
#include "checkpoint/schemes/settings.h"

namespace sluice {
namespace {

class Fp8 : public PlannedScheme {
 public:
  // `experts`: the layout of routed experts, if it differs from `layout`.
  Fp8(const SchemeSource& source, bool fp8_kv, LinearLayout layout, ModuleList excluded,
      std::optional<LinearLayout> experts = {})
      : PlannedScheme(source.plain_type, fp8_kv),
        layout_(std::move(layout)),
        experts_(std::move(experts)),
        excluded_(std::move(excluded)) {}

  std::string Name() const override {
    const DataFormat& format = layout_.format;
    if (experts_) {
      return fmt::format("FP8 in blocks of {}x{}, experts in {}", format.block_rows,
                         format.group_size, experts_->name);
    }
    if (format.scale_layout != DataFormat::ScaleLayout::kPerBlock) return "FP8 per tensor";
    return fmt::format("FP8 in blocks of {}x{}", format.block_rows, format.group_size);
  }
  std::string_view Method() const override { return "fp8"; }

 protected:
  ModulePlan PlanOf(std::string_view module) const override {
    const bool is_expert = experts_ && module.find(".experts.") != std::string_view::npos;
    return {is_expert ? &*experts_ : &layout_, excluded_.Contains(module)};
  }

 private:
  LinearLayout layout_;
  std::optional<LinearLayout> experts_;
  ModuleList excluded_;
};

// Reads the size of a block: [rows, columns].
Result<std::optional<std::pair<int, int>>> ReadBlockSize(const json::Value& block,
                                                         const std::string& where) {
  const json::Value* value = block.Find("weight_block_size");
  if (value == nullptr || IsEmptySetting(*value)) return std::nullopt;
  // A limit of the kernels: a block must consist of whole panels and lines.
  constexpr int64_t kMax = 1 << 16;
  const auto is_size = [](const json::Value& size) {
    return size.is_integer() && size.as_integer() > 0 && size.as_integer() <= kMax &&
           size.as_integer() % 16 == 0;
  };
  if (!value->is_array() || value->as_array().size() != 2 || !is_size(value->as_array()[0]) ||
      !is_size(value->as_array()[1])) {
    return UnsupportedSetting(where, "weight_block_size", *value,
                              "[rows, columns], multiples of 16");
  }
  return std::pair(static_cast<int>(value->as_array()[0].as_integer()),
                   static_cast<int>(value->as_array()[1].as_integer()));
}

class FbgemmFp8 : public Fp8 {
 public:
  using Fp8::Fp8;
  std::string Name() const override { return "FP8 per row (fbgemm)"; }
  std::string_view Method() const override { return "fbgemm_fp8"; }
};

}  // namespace

SchemeResult ReadFbgemmFp8(const SchemeSource& source) {
  const QuantizationSettings& settings = source.config ? *source.config : *source.sidecar;
  const json::Value& block = settings.block;
  const std::string& where = settings.where;
  RETURN_IF_ERROR(CheckKeys(
      block, where,
      {"quant_method", "activation_scale_ub", "modules_to_not_convert", "dequantize", "version"}));
  RETURN_IF_ERROR(CheckBool(block, where, "dequantize", false));
  const JsonFields fields(block, where + ".");
  constexpr double kMost = std::numeric_limits<float>::max();
  ASSIGN_OR_RETURN(const auto bound, fields.Number("activation_scale_ub", 1e-6, kMost));
  ASSIGN_OR_RETURN(const auto names, fields.Strings("modules_to_not_convert"));
  LinearLayout layout = Fp8PerRowLayout();
  // The default in transformers' FbgemmFp8Config.
  layout.activations.largest_amax = static_cast<float>(bound.value_or(1200.0));
  ModuleList excluded;
  if (names) RETURN_IF_ERROR(excluded.Add(*names, ModuleList::Syntax::kRegexPrefix));
  return std::make_shared<FbgemmFp8>(source, /*fp8_kv=*/false, std::move(layout),
                                     std::move(excluded));
}

SchemeResult ReadFp8(const SchemeSource& source) {
  const QuantizationSettings& settings = source.config ? *source.config : *source.sidecar;
  const json::Value& block = settings.block;
  const std::string& where = settings.where;
  RETURN_IF_ERROR(
      CheckKeys(block, where,
                {"quant_method", "fmt", "activation_scheme", "weight_block_size",
                 "modules_to_not_convert", "ignored_layers", "scale_fmt", "kv_cache_scheme",
                 "export", "dequantize", "producer", "version", "expert_dtype"}));
  RETURN_IF_ERROR(CheckString(block, where, "fmt", {"e4m3", "float8_e4m3fn"}));
  RETURN_IF_ERROR(CheckString(block, where, "activation_scheme", {"dynamic", "static"}));
  // ue8m0: the scales are powers of two. In that case inputs are not rounded, because this
  // program's kernels do not scale inputs by powers of two.
  RETURN_IF_ERROR(CheckString(block, where, "scale_fmt", {"float", "ue8m0"}));
  RETURN_IF_ERROR(CheckString(block, where, "expert_dtype", {"fp8", "fp4"}));
  RETURN_IF_ERROR(CheckBool(block, where, "dequantize", false));
  if (const json::Value* exported = block.Find("export"); exported != nullptr) {
    if (!exported->is_object()) return UnsupportedSetting(where, "export", *exported, "an object");
    RETURN_IF_ERROR(CheckString(*exported, where + ".export", "weight_format", {"real_quantized"}));
  }
  const JsonFields fields(block, where + ".");
  ASSIGN_OR_RETURN(const auto activations, fields.String("activation_scheme"));
  const bool is_static = activations && AsciiLower(*activations) == "static";
  ASSIGN_OR_RETURN(const auto scale_format, fields.String("scale_fmt"));
  const bool has_powers = scale_format && AsciiLower(*scale_format) == "ue8m0";
  ASSIGN_OR_RETURN(const auto expert_type, fields.String("expert_dtype"));
  const bool has_fp4 = expert_type && AsciiLower(*expert_type) == "fp4";
  ASSIGN_OR_RETURN(const auto size, ReadBlockSize(block, where));
  LinearLayout layout;
  if (size) {
    if (is_static) {
      return UnsupportedSetting(where, "activation_scheme", json::Value(*activations),
                                "dynamic where weight_block_size is given");
    }
    layout = Fp8BlockLayout(size->first, size->second);
    layout.scales = {"weight_scale_inv", "weight_scale", "scale"};
    if (has_powers) {
      layout.format.scale_type = ElementType::kF8E8M0;
      layout.activations = {};
      LOG_INFO("checkpoint", "{}.scale_fmt is ue8m0: inputs of FP8 matrices are not rounded",
               where);
    }
  } else if (has_powers || has_fp4) {
    return fields.Missing("weight_block_size");
  } else {
    layout = Fp8PerTensorLayout();
    layout.scales = {"weight_scale", "weight_scale_inv"};
    if (is_static) {
      layout.input_scales = {"input_scale", "activation_scale"};
    } else {
      layout.input_scales = {};
      layout.activations = {.kind = ActivationFormat::Kind::kFp8PerToken};
    }
  }
  ModuleList excluded;
  for (const char* name : {"modules_to_not_convert", "ignored_layers"}) {
    ASSIGN_OR_RETURN(const auto names, fields.Strings(name));
    if (names) RETURN_IF_ERROR(excluded.Add(*names, ModuleList::Syntax::kRegexPrefix));
  }
  ASSIGN_OR_RETURN(const bool fp8_kv,
                   ReadKvCacheScheme(block.Find("kv_cache_scheme"), where, "kv_cache_scheme"));
  std::optional<LinearLayout> experts;
  if (has_fp4) {
    experts = Mxfp4Layout();
    experts->scales = layout.scales;
    experts->activations = {};
  }
  return std::make_shared<Fp8>(source, fp8_kv, std::move(layout), std::move(excluded),
                               std::move(experts));
}

}  // namespace sluice
