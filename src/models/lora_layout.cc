#include "models/lora_layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/integer.h"
#include "kernels/lora.h"
#include "models/largest_sizes.h"

namespace sluice {
namespace {

constexpr int64_t kLoraAlignment = 64;

std::string_view LastPart(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

bool IsTarget(const LoraOptions& options, std::string_view name) {
  const std::vector<std::string>& targets = options.target_modules;
  return targets.empty() ||
         std::find(targets.begin(), targets.end(), LastPart(name)) != targets.end();
}

// The modules of an expert's matrix. Where its rows of gate and up alternate (`is_mixed`), they are
// one module, of which a rank holds one range.
std::vector<ParameterPart> PartsOfExpert(const MatrixParameter& matrix, bool is_mixed) {
  if (!is_mixed) return matrix.parts;
  const FusedExpert& fused = *matrix.fused;
  const size_t dot = fused.module.rfind('.');
  RowRange held;
  for (const ParameterPart& part : matrix.parts) {
    held.begin += part.held_rows().begin;
    held.end += part.held_rows().end;
  }
  return {{fmt::format("{}.{}.{}", fused.module.substr(0, dot), fused.expert,
                       fused.module.substr(dot + 1)),
           matrix.stored_rows(), held}};
}

}  // namespace

int64_t LoraModule::held_rows() const {
  int64_t sum = 0;
  for (const RowRange& range : held) sum += range.size();
  return sum;
}

void LoraLayout::Add(LoraModule module) {
  if (by_name_.emplace(module.name, modules.size()).second) modules.push_back(std::move(module));
}

void LoraLayout::Hold(LoraModule& module) {
  const auto take = [&](int64_t bytes) {
    const int64_t offset = slot_bytes;
    slot_bytes = RoundUp(slot_bytes + bytes, kLoraAlignment);
    return offset;
  };
  const auto a_bytes = module.is_embedding ? kernels::LoraTableBytes : kernels::LoraABytes;
  module.a_offset = take(a_bytes(options.max_rank, module.cols, options.type));
  module.b_offset = take(kernels::LoraBBytes(options.max_rank, module.held_rows(), options.type));
}

LoraLayout LoraLayout::For(const DecoderSpec& spec, const LoraOptions& options,
                           const ParameterList& parameters, DecoderWeights& weights,
                           const RankPlace& place) {
  LoraLayout layout;
  layout.options = options;
  if (IsTarget(options, kEmbeddingModule)) {
    layout.Add({.name = kEmbeddingModule,
                .rows = spec.hidden_size,
                .cols = spec.vocab_size,
                .is_embedding = true});
  }
  // Of all ranks, so that an adapter is checked as a whole by each.
  DecoderWeights unfilled;
  const LayerSpec* const moe_layer = options.experts ? spec.FirstMoeLayer() : nullptr;
  const bool is_mixed =
      moe_layer != nullptr && moe_layer->moe->activation == Activation::kClampedSwiglu;
  if (moe_layer != nullptr) layout.top_k = LargestSizes(spec).top_k;
  for (const MatrixParameter& matrix : ListParameters(spec, unfilled).matrices) {
    if (matrix.experts != nullptr && moe_layer != nullptr) layout.AddExpert(matrix, is_mixed);
    if (matrix.linear == nullptr || matrix.linear == &unfilled.head) continue;
    for (const ParameterPart& part : matrix.parts) {
      if (IsTarget(options, part.name))
        layout.Add({.name = part.name, .rows = part.rows, .cols = matrix.cols});
    }
  }
  if (spec.head.kind == HeadSpec::Kind::kVocabulary && IsTarget(options, kHeadModule))
    layout.Add({.name = kHeadModule, .rows = spec.vocab_size, .cols = spec.hidden_size});

  // Gives the modules of a layer memory; -1 if there are none.
  const auto hold = [&](const std::vector<ParameterPart>& parts) {
    LoraLayer layer;
    int64_t first_col = 0;
    for (const ParameterPart& part : parts) {
      if (const auto found = layout.by_name_.find(part.name); found != layout.by_name_.end()) {
        LoraModule& module = layout.modules[found->second];
        if (module.held.empty()) {
          module.first_col = first_col;
          if (layer.count++ == 0) layer.first = found->second;
        }
        if (part.held_rows().size() > 0) module.held.push_back(part.held_rows());
      }
      first_col += part.held_rows().size();
    }
    if (layer.count == 0) return -1;
    for (size_t i = 0; i < layer.count; ++i) layout.Hold(layout.modules[layer.first + i]);
    layout.layers.push_back(layer);
    return static_cast<int>(layout.layers.size()) - 1;
  };
  // Every rank of the first stage has the whole rows of the residual.
  weights.embedding_lora =
      place.is_first_stage() ? hold({{kEmbeddingModule, spec.hidden_size}}) : -1;
  for (const MatrixParameter& matrix : parameters.matrices) {
    if (matrix.linear != nullptr && matrix.linear != &weights.head)
      matrix.linear->lora_layer = hold(matrix.parts);
    if (matrix.experts == nullptr || moe_layer == nullptr) continue;
    const int layer = hold(PartsOfExpert(matrix, is_mixed));
    if (matrix.fused->expert == 0) matrix.experts->lora_layer = layer;
  }
  weights.head_lora = -1;
  if (place.is_first_stage()) {
    const RowRange words = CutRows(spec.vocab_size, place.tensor_rank, place.tensor_size);
    weights.head_lora = hold({{kHeadModule, spec.vocab_size, words}});
  }
  return layout;
}

void LoraLayout::AddExpert(const MatrixParameter& matrix, bool is_mixed) {
  const FusedExpert& fused = *matrix.fused;
  const size_t dot = fused.module.rfind('.');
  const std::vector<ParameterPart> parts = PartsOfExpert(matrix, is_mixed);
  if (fused.expert == 0) {
    experts.push_back({.name = fused.module.substr(0, dot),
                       .tensor = fused.module.substr(dot + 1),
                       .first_module = modules.size(),
                       .modules_each = parts.size(),
                       .num_experts = fused.num_experts,
                       .rows = matrix.stored_rows(),
                       .cols = matrix.cols});
  }
  for (const ParameterPart& part : parts)
    Add({.name = part.name, .rows = part.rows, .cols = matrix.cols});
}

const LoraModule* LoraLayout::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &modules[found->second];
}

std::vector<std::string> LoraLayout::TargetNames() const {
  std::vector<std::string> names;
  for (const LoraModule& module : modules) {
    std::string name(LastPart(module.name));
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  }
  return names;
}

int64_t LoraLayout::MostRanks() const {
  size_t most = 0;
  for (const LoraLayer& layer : layers) most = std::max(most, layer.count);
  return static_cast<int64_t>(most) * RoundUp(options.max_rank, kernels::kLoraTile);
}

int64_t LoraLayout::StepBytes(int64_t max_rows) const {
  return kernels::LoraScratchSize(std::max(max_rows, MostPairs(max_rows)), MostRanks()) *
         int64_t{sizeof(float)};
}

}  // namespace sluice
