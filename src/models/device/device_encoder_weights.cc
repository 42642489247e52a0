#include "models/device/device_encoder_weights.h"

#include <map>

#include <fmt/format.h>

#include "base/check.h"

namespace sluice {
namespace {

// Finds parameters by the targets that the list gives them.
class EncoderPlaces {
 public:
  EncoderPlaces(const ParameterList& list, const DeviceWeightLayout& layout, std::byte* memory)
      : layout_(layout), memory_(memory) {
    for (size_t i = 0; i < list.matrices.size(); ++i) matrices_[list.matrices[i].target] = i;
    for (size_t i = 0; i < list.vectors.size(); ++i) vectors_[list.vectors[i].target] = i;
  }

  device::Weights Matrix(const kernels::PackedMatrix& target) const {
    return layout_.matrix(matrices_.at(&target)).At(memory_);
  }
  // Null for a vector that the model does not have.
  const float* Vector(const std::vector<float>& target) const {
    const auto found = vectors_.find(&target);
    if (found == vectors_.end()) return nullptr;
    return reinterpret_cast<const float*>(memory_ + layout_.vector(found->second));
  }
  DeviceLayerNorm Norm(const LayerNormWeights& norm) const {
    return {Vector(norm.weight), Vector(norm.bias)};
  }
  DeviceLinearWeights Linear(const LinearWeights& weights) const {
    return {.matrix = Matrix(weights.matrix), .bias = Vector(weights.bias)};
  }

 private:
  const DeviceWeightLayout& layout_;
  std::byte* memory_;
  std::map<const kernels::PackedMatrix*, size_t> matrices_;
  std::map<const std::vector<float>*, size_t> vectors_;
};

// What the layout of weights asks of a model: its tables of rope.
DecoderSpec RopeSpec(const EncoderSpec& spec) {
  DecoderSpec rope;
  rope.rope_tables.push_back(spec.rope_frequencies);
  if (!spec.window_frequencies.empty()) rope.rope_tables.push_back(spec.window_frequencies);
  return rope;
}

}  // namespace

std::vector<float> EncoderRopeNumbers(const EncoderSpec& spec) {
  std::vector<float> numbers = spec.rope_frequencies;
  numbers.insert(numbers.end(), spec.window_frequencies.begin(), spec.window_frequencies.end());
  return numbers;
}

Result<DeviceWeightLayout> LayOutEncoder(const EncoderSpec& spec, const ParameterList& list,
                                         const std::vector<DataFormat>& formats) {
  for (size_t i = 0; i < formats.size(); ++i) {
    if (!formats[i].has_input_order) continue;
    const std::string& name = list.matrices[i].parts.front().name;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: an encoder's INT4 weights whose groups reorder their inputs "
                            "(act-order) are not computed on devices; serve it with --device cpu",
                            name),
                name);
  }
  return DeviceWeightLayout::For(RopeSpec(spec), list, formats);
}

DeviceEncoderWeights PlaceEncoderWeights(const EncoderSpec& spec, const ParameterList& list,
                                         const EncoderWeights& loaded,
                                         const DeviceWeightLayout& layout, std::byte* memory) {
  const EncoderPlaces places(list, layout, memory);
  DeviceEncoderWeights weights;
  const device::Weights words = places.Matrix(loaded.words);
  CHECK(words.type == ElementType::kBF16);
  weights.words = static_cast<const uint16_t*>(words.codes);
  weights.positions = places.Vector(loaded.positions);
  weights.types = places.Vector(loaded.types);
  weights.embedding_norm = places.Norm(loaded.embedding_norm);
  weights.final_norm = places.Norm(loaded.final_norm);
  const auto* const rope = reinterpret_cast<const float*>(memory + layout.rope_frequencies());
  if (!spec.rope_frequencies.empty()) weights.rope_frequencies = rope;
  if (!spec.window_frequencies.empty())
    weights.window_frequencies = rope + spec.rope_frequencies.size();
  for (const EncoderLayerWeights& from : loaded.layers) {
    weights.layers.push_back({.qkv = places.Linear(from.qkv),
                              .output = places.Linear(from.output),
                              .up = places.Linear(from.up),
                              .down = places.Linear(from.down),
                              .attention_norm = places.Norm(from.attention_norm),
                              .mlp_norm = places.Norm(from.mlp_norm)});
  }
  return weights;
}

}  // namespace sluice
