#include "models/device/device_encoder_weights.h"

#include <fmt/format.h>

namespace sluice {
namespace {

class EncoderPlaces : public DeviceParameterPlaces {
 public:
  using DeviceParameterPlaces::DeviceParameterPlaces;

  DeviceLayerNorm Norm(const LayerNormWeights& norm) const {
    return {Vector(norm.weight), Vector(norm.bias)};
  }
  DeviceLinearWeights Linear(const LinearWeights& weights) const {
    return {.matrix = Matrix(weights.matrix), .bias = Vector(weights.bias)};
  }
};

}  // namespace

std::vector<std::vector<float>> EncoderRopeTables(const EncoderSpec& spec) {
  return {spec.rope_frequencies, spec.window_frequencies};
}

Result<DeviceWeightLayout> LayOutEncoder(const EncoderSpec& spec, const ParameterList& list,
                                         const std::vector<DataFormat>& formats, bool keeps_apart) {
  for (size_t i = 0; i < formats.size(); ++i) {
    if (!formats[i].has_input_order) continue;
    const std::string& name = list.matrices[i].parts.front().name;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: an encoder's INT4 weights whose groups reorder their inputs "
                            "(act-order) are not computed on devices; serve it with --device cpu",
                            name),
                name);
  }
  return DeviceWeightLayout::For(EncoderRopeTables(spec), list, formats, keeps_apart);
}

DeviceEncoderWeights PlaceEncoderWeights(const EncoderSpec& spec, const ParameterList& list,
                                         const EncoderWeights& loaded,
                                         const DeviceWeightLayout& layout, std::byte* memory) {
  const EncoderPlaces places(list, layout, memory);
  DeviceEncoderWeights weights;
  weights.words = places.Bf16(loaded.words);
  weights.positions = places.Vector(loaded.positions);
  weights.types = places.Vector(loaded.types);
  weights.embedding_norm = places.Norm(loaded.embedding_norm);
  weights.final_norm = places.Norm(loaded.final_norm);
  const float* const rope = places.RopeFrequencies();
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
