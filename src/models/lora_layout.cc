#include "models/lora_layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/integer.h"
#include "kernels/linear.h"
#include "kernels/lora.h"

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

// Returns the modules of an expert's matrix. If rows of gate and up alternate (`is_mixed`), they
// are one module, of which a rank has one range.
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

int64_t SumOf(const std::vector<RowRange>& ranges) {
  int64_t sum = 0;
  for (const RowRange& range : ranges) sum += range.size();
  return sum;
}

// Returns whether adapters may replace the vector. RMS norms, biases and scores are replaceable;
// scalar or per-expert scales and sinks are not. Norms of indexers, layer norms and mixers' gated
// norms always use the base's values.
bool IsReplaceable(const VectorParameter& vector, const std::vector<const void*>& biases,
                   const DecoderSpec& spec, const DecoderWeights& weights) {
  if (vector.target == &weights.scores) return true;
  if (vector.kind == VectorParameter::Kind::kNorm) {
    const std::string& name = vector.parts.front().name;
    const auto is_gated = [&](const LayerWeights& layer) {
      return vector.target == &layer.mixer.norm;
    };
    return name.ends_with(".weight") && name.find(".indexer.") == std::string::npos &&
           name.find(".index_") == std::string::npos &&
           name.find(".compressor.") == std::string::npos &&
           spec.norm.kind == NormSpec::Kind::kRms &&
           std::none_of(weights.layers.begin(), weights.layers.end(), is_gated);
  }
  return std::find(biases.begin(), biases.end(), vector.target) != biases.end();
}

std::vector<const void*> BiasesOf(const ParameterList& parameters) {
  std::vector<const void*> biases;
  for (const MatrixParameter& matrix : parameters.matrices) {
    if (matrix.linear != nullptr) biases.push_back(&matrix.linear->bias);
  }
  return biases;
}

}  // namespace

std::vector<int64_t> LoraReplaceable::shape() const {
  if (kind != Kind::kVector) return {rows, cols};
  return width == 0 ? std::vector{rows} : std::vector{rows / width, width};
}

int64_t LoraModule::held_rows() const {
  return SumOf(held);
}
int64_t LoraReplaceable::held_rows() const {
  return SumOf(held);
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
  layout.vocab_size = spec.vocab_size;
  if (IsTarget(options, kEmbeddingModule)) {
    layout.Add({.name = kEmbeddingModule,
                .rows = spec.hidden_size,
                .cols = spec.vocab_size,
                .is_embedding = true});
  }
  // Every rank lists the modules of the whole model, so that each rank checks an adapter
  // completely.
  DecoderWeights unfilled;
  const LayerSpec* const moe_layer = options.experts ? spec.FirstMoeLayer() : nullptr;
  const bool is_mixed =
      moe_layer != nullptr && moe_layer->moe->activation == Activation::kClampedSwiglu;
  if (moe_layer != nullptr) {
    for (const LayerSpec& layer : spec.layers)
      layout.top_k = std::max(layout.top_k, layer.moe ? layer.moe->top_k : 0);
  }
  const ParameterList whole = ListParameters(spec, unfilled);
  for (const MatrixParameter& matrix : whole.matrices) {
    if (matrix.experts != nullptr && moe_layer != nullptr) layout.AddExpert(matrix, is_mixed);
    if (matrix.linear == nullptr || matrix.linear == &unfilled.head) continue;
    for (const ParameterPart& part : matrix.parts) {
      if (IsTarget(options, part.name))
        layout.Add({.name = part.name, .rows = part.rows, .cols = matrix.cols});
    }
  }
  if (spec.head.kind == HeadSpec::Kind::kVocabulary && IsTarget(options, kHeadModule))
    layout.Add({.name = kHeadModule, .rows = spec.vocab_size, .cols = spec.hidden_size});

  // Assigns memory to the modules of a layer. Returns the layer's index, or -1 if it has no
  // modules.
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
  // Every rank of the first stage computes whole rows of the residual.
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
  if (options.vectors) {
    layout.AddReplaceables(spec, whole, unfilled);
    layout.HoldReplaceables(spec, parameters, weights, place);
  }
  return layout;
}

void LoraLayout::AddReplaceables(const DecoderSpec& spec, const ParameterList& whole,
                                 const DecoderWeights& unfilled) {
  const auto add = [&](LoraReplaceable replaceable) {
    if (replaceable_by_name_.emplace(replaceable.tensor, replaceables.size()).second)
      replaceables.push_back(std::move(replaceable));
  };
  const auto has_room = [&](std::string_view module) {
    const std::vector<std::string>& names = options.replaced_modules;
    return std::find(names.begin(), names.end(), LastPart(module)) != names.end();
  };
  const auto add_matrix = [&](LoraReplaceable::Kind kind, const std::string& module, int64_t rows,
                              int64_t cols) {
    add({.kind = kind,
         .tensor = module + ".weight",
         .rows = rows,
         .cols = cols,
         .has_room = has_room(module)});
  };
  add_matrix(LoraReplaceable::Kind::kTable, kEmbeddingModule, spec.vocab_size, spec.hidden_size);
  for (const MatrixParameter& matrix : whole.matrices) {
    if (matrix.linear == nullptr || matrix.linear == &unfilled.head) continue;
    for (const ParameterPart& part : matrix.parts)
      add_matrix(LoraReplaceable::Kind::kMatrix, part.name, part.rows, matrix.cols);
  }
  if (spec.head.kind == HeadSpec::Kind::kVocabulary)
    add_matrix(LoraReplaceable::Kind::kMatrix, kHeadModule, spec.vocab_size, spec.hidden_size);
  const std::vector<const void*> biases = BiasesOf(whole);
  for (const VectorParameter& vector : whole.vectors) {
    if (!IsReplaceable(vector, biases, spec, unfilled)) continue;
    for (const ParameterPart& part : vector.parts) {
      add({.kind = LoraReplaceable::Kind::kVector,
           .tensor = part.name,
           .rows = part.rows,
           .has_room = true,
           .factor = vector.factor,
           .add = vector.offset,
           .width = vector.width});
    }
  }
}

void LoraLayout::HoldReplaceables(const DecoderSpec& spec, const ParameterList& parameters,
                                  const DecoderWeights& weights, const RankPlace& place) {
  const auto hold = [&](const std::string& tensor, const RowRange& rows, int64_t first) {
    const auto found = replaceable_by_name_.find(tensor);
    CHECK(found != replaceable_by_name_.end());
    LoraReplaceable& replaceable = replaceables[found->second];
    if (replaceable.held.empty()) replaceable.first = first;
    if (rows.size() > 0) replaceable.held.push_back(rows);
    return &replaceable;
  };
  if (place.is_first_stage()) {
    hold(fmt::format("{}.weight", kEmbeddingModule), {0, spec.vocab_size}, 0);
    if (spec.head.kind == HeadSpec::Kind::kVocabulary) {
      hold(fmt::format("{}.weight", kHeadModule),
           CutRows(spec.vocab_size, place.tensor_rank, place.tensor_size), 0)
          ->linear = spec.LoadsHead() ? &weights.head : nullptr;
    }
  }
  for (const MatrixParameter& matrix : parameters.matrices) {
    if (matrix.linear == nullptr || matrix.linear == &weights.head) continue;
    int64_t first = 0;
    for (const ParameterPart& part : matrix.parts) {
      hold(part.name + ".weight", part.held_rows(), first)->linear = matrix.linear;
      first += part.held_rows().size();
    }
  }
  for (LoraReplaceable& replaceable : replaceables) {
    if (replaceable.kind == LoraReplaceable::Kind::kVector || replaceable.held.empty()) continue;
    replaceable.bytes = kernels::PackedBytes(DataFormat{.type = options.type},
                                             replaceable.held_rows(), replaceable.cols);
    if (replaceable.has_room) replaced_bytes += replaceable.bytes;
  }
  const std::vector<const void*> biases = BiasesOf(parameters);
  for (const VectorParameter& vector : parameters.vectors) {
    if (!IsReplaceable(vector, biases, spec, weights)) continue;
    int64_t first = 0;
    for (const ParameterPart& part : vector.parts) {
      hold(part.name, part.held_rows(), first)->vector = vectors.size();
      first += part.held_rows().size();
    }
    vectors.push_back({.base = vector.target, .size = first});
    replaced_bytes += first * int64_t{sizeof(float)};
  }
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

const LoraReplaceable* LoraLayout::FindReplaceable(std::string_view tensor) const {
  const auto found = replaceable_by_name_.find(tensor);
  return found == replaceable_by_name_.end() ? nullptr : &replaceables[found->second];
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
