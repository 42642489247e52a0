#include <algorithm>
#include <array>

#include "checkpoint/schemes/linear_layout.h"

namespace sluice {

LinearLayout Fp8PerTensorLayout() {
  return {
      .name = "FP8 per-tensor",
      .format = {.type = ElementType::kF8E4M3, .scale_layout = DataFormat::ScaleLayout::kPerTensor},
      .activations = {.kind = ActivationFormat::Kind::kFp8Static},
      .input_scales = {"input_scale"}};
}

LinearLayout Fp8PerRowLayout() {
  return {
      .name = "FP8 per-row",
      .format = {.type = ElementType::kF8E4M3, .scale_layout = DataFormat::ScaleLayout::kPerRow},
      .activations = {.kind = ActivationFormat::Kind::kFp8PerToken}};
}

LinearLayout Fp8BlockLayout(int block_rows, int block_cols) {
  return {.name = "FP8 block",
          .format = {.type = ElementType::kF8E4M3,
                     .scale_layout = DataFormat::ScaleLayout::kPerBlock,
                     .group_size = block_cols,
                     .block_rows = block_rows},
          .activations = {.kind = ActivationFormat::Kind::kFp8PerGroup, .group_size = block_cols}};
}

LinearLayout Nvfp4Layout() {
  return {.name = "NVFP4",
          .format = {.type = ElementType::kF4E2M1,
                     .scale_layout = DataFormat::ScaleLayout::kPerGroup,
                     .scale_type = ElementType::kF8E4M3,
                     .group_size = 16,
                     .has_second_scale = true},
          .activations = {.kind = ActivationFormat::Kind::kNvfp4, .group_size = 16},
          .second_scale = "weight_scale_2",
          .input_scales = {"input_scale"}};
}

LinearLayout Mxfp4Layout() {
  return {.name = "MXFP4",
          .format = {.type = ElementType::kF4E2M1,
                     .scale_layout = DataFormat::ScaleLayout::kPerGroup,
                     .scale_type = ElementType::kF8E8M0,
                     .group_size = 32},
          .activations = {.kind = ActivationFormat::Kind::kMxfp4, .group_size = 32}};
}

bool IsNeverQuantized(std::string_view module) {
  constexpr auto kSuffixes = std::to_array<std::string_view>(
      {".embed_tokens", ".embed_tokens_per_layer", "norm", ".router", ".router.proj", ".mlp.gate",
       ".mixer.gate", ".block_sparse_moe.gate", ".feed_forward.gate", ".ffn.gate",
       ".compressor.wkv", ".compressor.wgate", ".weights_proj"});
  return std::any_of(kSuffixes.begin(), kSuffixes.end(),
                     [&](std::string_view suffix) { return module.ends_with(suffix); });
}

DataFormat PlannedScheme::PlannedFormat(std::string_view module) const {
  const ModulePlan plan = PlanOf(module);
  if (plan.layout == nullptr || plan.excluded || IsNeverQuantized(module))
    return {.type = plain_type_};
  return plan.layout->format;
}

ActivationFormat PlannedScheme::PlannedActivations(std::string_view module) const {
  const ModulePlan plan = PlanOf(module);
  if (plan.layout == nullptr || plan.excluded || IsNeverQuantized(module)) return {};
  return plan.layout->activations;
}

Result<StoredLinear> PlannedScheme::Find(const Checkpoint& checkpoint, const std::string& module,
                                         int64_t rows, int64_t cols) const {
  ModulePlan plan = PlanOf(module);
  // Lists of excluded modules often omit modules that no tool quantizes.
  if (IsNeverQuantized(module)) plan.excluded = true;
  return FindStoredLinear(checkpoint, module, rows, cols, plan);
}

Result<std::optional<StoredLinear>> PlannedScheme::FindFusedExpert(
    const Checkpoint& checkpoint, const std::string& module, int64_t expert, int64_t num_experts,
    int64_t rows, int64_t cols, bool transposed) const {
  return FindStoredExpert(checkpoint, module, expert, num_experts, rows, cols, transposed,
                          PlanOf(module));
}

Result<KvScales> PlannedScheme::FindKvScales(const Checkpoint& checkpoint,
                                             const std::string& attention) const {
  return FindStoredKvScales(checkpoint, attention);
}

bool PlannedScheme::IsSuperfluous(const Checkpoint& checkpoint, std::string_view tensor) const {
  return IsSuperfluousScale(checkpoint, tensor);
}

}  // namespace sluice
