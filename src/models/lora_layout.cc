#include "models/lora_layout.h"

#include <algorithm>

#include "base/integer.h"
#include "kernels/lora.h"

namespace sluice {
namespace {

constexpr int64_t kAlignment = 64;

std::string_view LastPart(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

bool IsTarget(const LoraOptions& options, std::string_view name) {
  const std::vector<std::string>& targets = options.target_modules;
  return targets.empty() ||
         std::find(targets.begin(), targets.end(), LastPart(name)) != targets.end();
}

}  // namespace

void LoraLayout::Add(LoraModule module) {
  const auto take = [&](int64_t bytes) {
    const int64_t offset = slot_bytes;
    slot_bytes = RoundUp(slot_bytes + bytes, kAlignment);
    return offset;
  };
  const auto a_bytes = module.is_embedding ? kernels::LoraTableBytes : kernels::LoraABytes;
  module.a_offset = take(a_bytes(options.max_rank, module.cols, options.type));
  module.b_offset = take(kernels::LoraBBytes(options.max_rank, module.rows, options.type));
  by_name_.emplace(module.name, modules.size());
  modules.push_back(std::move(module));
}

LoraLayout LoraLayout::For(const DecoderSpec& spec, const LoraOptions& options,
                           const ParameterList& parameters, DecoderWeights& weights) {
  LoraLayout layout;
  layout.options = options;
  // Adds the layer of the modules since `first`; -1 if there are none.
  const auto add_layer = [&](size_t first) {
    if (layout.modules.size() == first) return -1;
    layout.layers.push_back({first, layout.modules.size() - first});
    return static_cast<int>(layout.layers.size()) - 1;
  };
  size_t first = 0;
  if (IsTarget(options, kEmbeddingModule)) {
    layout.Add({.name = kEmbeddingModule,
                .rows = spec.hidden_size,
                .cols = spec.vocab_size,
                .is_embedding = true});
  }
  weights.embedding_lora = add_layer(first);
  for (const MatrixParameter& matrix : parameters.matrices) {
    if (matrix.linear == nullptr || matrix.linear == &weights.head) continue;
    first = layout.modules.size();
    int64_t first_col = 0;
    for (const ParameterPart& part : matrix.parts) {
      if (IsTarget(options, part.name)) {
        layout.Add(
            {.name = part.name, .rows = part.rows, .cols = matrix.cols, .first_col = first_col});
      }
      first_col += part.rows;
    }
    matrix.linear->lora_layer = add_layer(first);
  }
  first = layout.modules.size();
  if (spec.head.kind == HeadSpec::Kind::kVocabulary && IsTarget(options, kHeadModule))
    layout.Add({.name = kHeadModule, .rows = spec.vocab_size, .cols = spec.hidden_size});
  weights.head_lora = add_layer(first);
  return layout;
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

int64_t LoraLayout::TotalBytes(int64_t max_rows) const {
  return options.num_slots * slot_bytes +
         kernels::LoraScratchSize(max_rows, MostRanks()) * int64_t{sizeof(float)};
}

}  // namespace sluice
