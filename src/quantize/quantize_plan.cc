#include "quantize/quantize_plan.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "checkpoint/schemes/linear_layout.h"
#include "checkpoint/schemes/module_pattern.h"

namespace sluice {
namespace {

constexpr std::string_view kWeight = ".weight";

// Writes the canonical `name` in the source's naming scheme, which is derived from one of the
// source's tensors.
std::string SpelledLike(const std::string& original, std::string_view name) {
  const std::string canonical = CanonicalName(original);
  if (original.size() == canonical.size()) return std::string(name);
  constexpr std::string_view kModel = "model.";
  if (original.starts_with("model.language_model.") && name.starts_with(kModel))
    return "model.language_model." + std::string(name.substr(kModel.size()));
  return "language_model." + std::string(name);
}

int64_t LayerOf(std::string_view module) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (!module.starts_with(kPrefix)) return -1;
  return std::atoll(std::string(module.substr(kPrefix.size())).c_str());
}

// Builds the plan, parameter by parameter.
class Planner {
 public:
  Planner(const ModelConfig& config, const Checkpoint& checkpoint, const QuantizeOptions& options)
      : config_(config), checkpoint_(checkpoint), options_(options), target_(*options.target) {}

  Status AddMatrix(const MatrixParameter& matrix) {
    const int64_t layer = LayerOf(matrix.parts.front().name);
    if (layer < 0 || IsNeverQuantized(matrix.parts.front().name)) {
      for (const ParameterPart& part : matrix.parts) KeepPlain(part.name);
      return {};
    }
    if (matrix.fused) {
      const FusedExpert& fused = *matrix.fused;
      ASSIGN_OR_RETURN(auto expert, config_.scheme->FindFusedExpert(
                                        checkpoint_, fused.module, fused.expert, fused.num_experts,
                                        matrix.rows(), matrix.cols, fused.transposed));
      if (expert) return AddFused(layer, matrix, *std::move(expert));
    }
    QuantizedGroup group{.inputs = {matrix.target}, .cols = matrix.cols};
    for (const ParameterPart& part : matrix.parts) {
      if (excluded_.Contains(part.name)) {
        KeepPlain(part.name);
        continue;
      }
      ASSIGN_OR_RETURN(auto expert, FindFusedPart(matrix, part));
      const bool is_fused = expert.has_value();
      if (is_fused && excluded_.Contains(part.fused)) {
        if (matrix.fused->expert == 0) KeepPlain(part.fused);
        continue;
      }
      if (!is_fused) {
        ASSIGN_OR_RETURN(expert,
                         config_.scheme->Find(checkpoint_, part.name, part.rows, matrix.cols));
      }
      const StoredLinear& found = *expert;
      const std::string& tensor = found.tensors.front()->info->name;
      RETURN_IF_ERROR(CheckFits(tensor, matrix.cols));
      group.modules.push_back({.name = is_fused ? SpelledLike(tensor, part.name)
                                                : tensor.substr(0, tensor.size() - kWeight.size()),
                               .source = found.matrix,
                               .tensor = found.tensors.front(),
                               .rows = part.rows});
    }
    AddGroup(layer, std::move(group));
    return {};
  }

  Status Start() {
    auto added = excluded_.Add(options_.exclude, ModuleList::Syntax::kRegexPrefix);
    if (!added) return tl::unexpected<Error>(std::move(added).error().In("--exclude"));
    return {};
  }

  QuantizePlan Finish(const std::vector<KvScaleParameter>& kv_scales) {
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (replaced_.contains(&tensor)) continue;
      plan_.copied.push_back(&tensor);
    }
    for (QuantizedLayer& layer : plan_.layers) {
      layer.attention = fmt::format("model.layers.{}.self_attn", layer.index);
      if (!layer.groups.empty()) {
        layer.attention =
            SpelledLike(layer.groups[0].modules[0].tensor->info->name, layer.attention);
      }
    }
    ListTensors(kv_scales);
    ListPlainModules();
    return std::move(plan_);
  }

 private:
  // Finds the matrix's part in a checkpoint that stores all experts of a projection in one tensor.
  Result<std::optional<StoredLinear>> FindFusedPart(const MatrixParameter& matrix,
                                                    const ParameterPart& part) const {
    if (part.fused.empty()) return std::optional<StoredLinear>();
    const FusedExpert& fused = *matrix.fused;
    return config_.scheme->FindFusedExpert(checkpoint_, part.fused, fused.expert, fused.num_experts,
                                           part.rows, matrix.cols, fused.transposed);
  }

  Status CheckFits(const std::string& tensor, int64_t cols) const {
    const DataFormat& format = target_.format;
    if (format.scale_layout != DataFormat::ScaleLayout::kPerGroup || cols % format.group_size == 0)
      return {};
    return Fail(ErrorCode::kUnsupported,
                fmt::format("tensor '{}' has {} inputs, which is not a multiple of the group size "
                            "{}; exclude it with --exclude or choose another --to",
                            tensor, cols, format.group_size),
                tensor);
  }

  void KeepPlain(const std::string& module) {
    ++plan_.num_plain;
    const StoredTensor* tensor = checkpoint_.Find(module + std::string(kWeight));
    plain_.insert(tensor == nullptr
                      ? module
                      : tensor->info->name.substr(0, tensor->info->name.size() - kWeight.size()));
  }

  QuantizedLayer& LayerAt(int64_t index) {
    while (static_cast<int64_t>(plan_.layers.size()) <= index)
      plan_.layers.push_back({.index = static_cast<int64_t>(plan_.layers.size())});
    return plan_.layers[static_cast<size_t>(index)];
  }

  void AddGroup(int64_t layer, QuantizedGroup group) {
    if (group.modules.empty()) return;
    for (const QuantizedModule& module : group.modules) replaced_.insert(module.tensor);
    LayerAt(layer).groups.push_back(std::move(group));
  }

  // Adds one expert of a fused tensor.
  Status AddFused(int64_t layer, const MatrixParameter& matrix, StoredLinear expert) {
    const FusedExpert& fused = *matrix.fused;
    const StoredTensor* tensor = expert.tensors.front();
    const std::string& name = tensor->info->name;
    if (excluded_.Contains(fused.module)) {
      if (fused.expert == 0) KeepPlain(fused.module);
      return {};
    }
    RETURN_IF_ERROR(CheckFits(name, matrix.cols));
    if (target_.fuses_experts) {
      QuantizedModule module{.name = name,
                             .source = expert.matrix,
                             .tensor = tensor,
                             .rows = matrix.rows(),
                             .expert = fused.expert,
                             .num_experts = fused.num_experts};
      replaced_.insert(tensor);
      // All experts of a fused tensor form one group.
      auto& groups = LayerAt(layer).groups;
      auto found = std::find_if(groups.begin(), groups.end(), [&](const QuantizedGroup& group) {
        return group.modules.front().name == name;
      });
      if (found == groups.end()) {
        groups.push_back(
            {.modules = {std::move(module)}, .inputs = {matrix.target}, .cols = matrix.cols});
      } else {
        found->modules.push_back(std::move(module));
        found->inputs.push_back(matrix.target);
      }
      return {};
    }
    QuantizedGroup group{.inputs = {matrix.target}, .cols = matrix.cols};
    int64_t first_row = 0;
    for (const ParameterPart& part : matrix.parts) {
      group.modules.push_back({.name = SpelledLike(name, part.name),
                               .source = expert.matrix,
                               .tensor = tensor,
                               .first_row = first_row,
                               .rows = part.rows});
      first_row += part.rows;
    }
    AddGroup(layer, std::move(group));
    return {};
  }

  void Plan(std::string name, ElementType type, std::vector<int64_t> shape) {
    plan_.tensors.push_back({std::move(name), type, std::move(shape)});
  }

  void ListModule(const QuantizedModule& module, int64_t cols) {
    const DataFormat& format = target_.format;
    if (module.expert > 0) return;  // The tensors of all experts were planned with the first one.
    const bool fused = module.expert == 0;
    const auto shape = [&](int64_t rows, int64_t inner) -> std::vector<int64_t> {
      if (fused) return {module.num_experts, inner, rows};
      return {rows, inner};
    };
    const bool is_packed = format.type == ElementType::kF4E2M1;
    Plan(DataNameOf(target_, module), is_packed ? ElementType::kU8 : format.type,
         shape(module.rows, is_packed ? cols / 2 : cols));
    const std::vector<int64_t> scalar(static_cast<size_t>(target_.scalar_rank), 1);
    const ElementType number =
        format.scale_type == ElementType::kBF16 ? ElementType::kBF16 : ElementType::kF32;
    // Power-of-two scales are written as U8, as the tools do.
    const ElementType scale =
        format.scale_type == ElementType::kF8E8M0 ? ElementType::kU8 : format.scale_type;
    std::vector<int64_t> scale_shape = scalar;
    switch (format.scale_layout) {
      case DataFormat::ScaleLayout::kPerRow: scale_shape = {module.rows, 1}; break;
      case DataFormat::ScaleLayout::kPerGroup:
        scale_shape = shape(module.rows, cols / format.group_size);
        break;
      case DataFormat::ScaleLayout::kPerBlock:
        scale_shape = {(module.rows + format.block_rows - 1) / format.block_rows,
                       (cols + format.group_size - 1) / format.group_size};
        break;
      default: break;
    }
    Plan(TensorNameOf(module, target_.scale), scale, scale_shape);
    if (format.has_second_scale)
      Plan(TensorNameOf(module, target_.second_scale), ElementType::kF32, scalar);
    if (!target_.input_scale.empty())
      Plan(TensorNameOf(module, target_.input_scale), number, scalar);
  }

  void ListTensors(const std::vector<KvScaleParameter>& kv_scales) {
    for (const StoredTensor* tensor : plan_.copied)
      Plan(tensor->info->name, tensor->info->type, tensor->info->shape);
    const KvScaleNames names = KvScaleNamesOf(target_);
    for (const QuantizedLayer& layer : plan_.layers) {
      for (const QuantizedGroup& group : layer.groups) {
        for (const QuantizedModule& module : group.modules) ListModule(module, group.cols);
      }
      if (!options_.fp8_kv_cache || kv_scales.empty()) continue;
      const std::vector<int64_t> scalar(static_cast<size_t>(target_.scalar_rank), 1);
      Plan(layer.attention + std::string(names.key), names.type, scalar);
      Plan(layer.attention + std::string(names.value), names.type, scalar);
    }
  }

  void ListPlainModules() {
    // The head is listed even if it is tied to the embedding, as in the checkpoints of published
    // tools.
    constexpr std::string_view kHead = "lm_head";
    plain_.insert(SpelledLike(checkpoint_.Find("model.embed_tokens.weight")->info->name, kHead));
    plan_.plain_modules.assign(plain_.begin(), plain_.end());
    const bool has_images =
        std::any_of(plan_.copied.begin(), plan_.copied.end(), [](const StoredTensor* tensor) {
          return tensor->info->name.find("vision_model.") != std::string::npos;
        });
    if (!has_images) return;
    for (const char* part : {"vision_model", "multi_modal_projector"}) {
      plan_.plain_modules.push_back(target_.name.starts_with("modelopt") ? fmt::format("{}*", part)
                                    : target_.name == "block-fp8"        ? part
                                                                  : fmt::format("re:{}.*", part));
    }
  }

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  const QuantizeOptions& options_;
  const QuantizeTarget& target_;
  ModuleList excluded_;
  QuantizePlan plan_;
  std::set<std::string> plain_;
  std::set<const StoredTensor*> replaced_;
};

}  // namespace

std::string TensorNameOf(const QuantizedModule& module, std::string_view suffix) {
  return fmt::format("{}{}{}", module.name, module.expert >= 0 ? '_' : '.', suffix);
}

std::string DataNameOf(const QuantizeTarget& target, const QuantizedModule& module) {
  return module.expert >= 0 ? module.name : TensorNameOf(module, target.data);
}

Result<QuantizePlan> PlanQuantization(const ModelConfig& config, const Checkpoint& checkpoint,
                                      const ParameterList& list, const QuantizeOptions& options) {
  Planner planner(config, checkpoint, options);
  RETURN_IF_ERROR(planner.Start());
  for (const MatrixParameter& matrix : list.matrices) RETURN_IF_ERROR(planner.AddMatrix(matrix));
  QuantizePlan plan = planner.Finish(list.kv_scales);
  const bool any = std::any_of(plan.layers.begin(), plan.layers.end(),
                               [](const QuantizedLayer& layer) { return !layer.groups.empty(); });
  if (!any) {
    return Fail(ErrorCode::kInvalidArgument, "--exclude leaves nothing to quantize", "exclude");
  }
  return plan;
}

}  // namespace sluice
