// Reads quant_method "mxfp4": the experts of gpt-oss as published. Two tensors contain all experts:
// "<module>_blocks" [experts, out, in / 32, 16]: two codes per byte, the even input in the low
// half;
//
// "<module>_scales" [experts, out, in / 32]: one power of two per 32 inputs.
//
// All other weights are unquantized.
#include <fmt/format.h>

#include "checkpoint/schemes/linear_layout.h"
#include "checkpoint/schemes/module_pattern.h"
#include "checkpoint/schemes/settings.h"
#include "checkpoint/schemes/tensor_checks.h"

namespace sluice {
namespace {

constexpr int64_t kGroup = 32;

LinearLayout ExpertLayout() {
  LinearLayout layout = Mxfp4Layout();
  layout.activations = {};  // inputs are not rounded
  return layout;
}

class Mxfp4 : public PlannedScheme {
 public:
  Mxfp4(const SchemeSource& source, ModuleList excluded)
      : PlannedScheme(source.plain_type, false),
        layout_(ExpertLayout()),
        excluded_(std::move(excluded)) {}

  std::string Name() const override { return "MXFP4 experts"; }
  std::string_view Method() const override { return "mxfp4"; }

  Result<std::optional<StoredLinear>> FindFusedExpert(const Checkpoint& checkpoint,
                                                      const std::string& module, int64_t expert,
                                                      int64_t num_experts, int64_t rows,
                                                      int64_t cols,
                                                      bool transposed) const override {
    const std::string name = module + "_blocks";
    const StoredTensor* blocks = checkpoint.Find(name);
    // The experts are unquantized, although the configuration says otherwise.
    if (blocks == nullptr && checkpoint.Find(module) != nullptr) {
      return PlannedScheme::FindFusedExpert(checkpoint, module, expert, num_experts, rows, cols,
                                            transposed);
    }
    const std::string why =
        fmt::format("MXFP4 weights [{}, {}] of {} experts", rows, cols, num_experts);
    if (blocks == nullptr) return MissingTensor(name, "(" + why + ")");
    const StoredTensor* scales = checkpoint.Find(module + "_scales");
    if (scales == nullptr) return MissingTensor(module + "_scales", "(scales of " + why + ")");
    if (cols % kGroup != 0) {
      return Misfit(*blocks, fmt::format("inputs in whole groups of {}", kGroup),
                    fmt::format("{} inputs", cols));
    }
    const int64_t groups = cols / kGroup;
    RETURN_IF_ERROR(CheckType(*blocks, {ElementType::kU8}, why));
    RETURN_IF_ERROR(
        CheckShape(*blocks, {num_experts, rows, groups, kGroup / 2}, /*squeeze=*/false, why));
    RETURN_IF_ERROR(CheckType(*scales, {ElementType::kU8, ElementType::kF8E8M0}, why));
    RETURN_IF_ERROR(CheckShape(*scales, {num_experts, rows, groups}, /*squeeze=*/false, why));
    StoredLinear linear;
    linear.matrix = {.format = layout_.format,
                     .rows = rows,
                     .cols = cols,
                     .data = blocks->bytes().data() + expert * rows * cols / 2,
                     .scales = scales->bytes().data() + expert * rows * groups};
    linear.tensors = {blocks, scales};
    return linear;
  }

 protected:
  ModulePlan PlanOf(std::string_view module) const override {
    if (module.find(".experts") == std::string_view::npos) return {};
    return {&layout_, excluded_.Contains(module)};
  }

 private:
  LinearLayout layout_;
  ModuleList excluded_;
};

}  // namespace

SchemeResult ReadMxfp4(const SchemeSource& source) {
  const QuantizationSettings& settings = source.config ? *source.config : *source.sidecar;
  const json::Value& block = settings.block;
  const std::string& where = settings.where;
  RETURN_IF_ERROR(
      CheckKeys(block, where, {"quant_method", "modules_to_not_convert", "dequantize"}));
  RETURN_IF_ERROR(CheckBool(block, where, "dequantize", false));
  ModuleList excluded;
  ASSIGN_OR_RETURN(const auto names,
                   JsonFields(block, where + ".").Strings("modules_to_not_convert"));
  if (names) RETURN_IF_ERROR(excluded.Add(*names, ModuleList::Syntax::kRegexPrefix));
  return std::make_shared<Mxfp4>(source, std::move(excluded));
}

}  // namespace sluice
