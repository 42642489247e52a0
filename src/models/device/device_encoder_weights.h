// The parameters of an encoder on a device: the kernels' arguments for them.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "models/device/device_weights.h"
#include "models/encoder/encoder_spec.h"
#include "models/encoder/encoder_weights.h"

namespace sluice {

// Null where there is no such norm, or it has no bias.
struct DeviceLayerNorm {
  const float* weight = nullptr;  // [hidden]
  const float* bias = nullptr;    // [hidden]
};

// As EncoderLayerWeights.
struct DeviceEncoderLayerWeights {
  DeviceLinearWeights qkv, output, up, down;
  DeviceLayerNorm attention_norm, mlp_norm;
};

struct DeviceEncoderWeights {
  const uint16_t* words = nullptr;   // BF16 [vocab, hidden]
  const float* positions = nullptr;  // [num_positions, hidden], or null
  const float* types = nullptr;      // [num_types, hidden], or null
  DeviceLayerNorm embedding_norm, final_norm;
  // [head_dim / 2] each, or null.
  const float* rope_frequencies = nullptr;
  const float* window_frequencies = nullptr;
  std::vector<DeviceEncoderLayerWeights> layers;
};

// Where the parameters of `list` lie in one allocation. `formats` as of DeviceWeightLayout::For;
// kUnsupported names a matrix that no kernel takes.
Result<DeviceWeightLayout> LayOutEncoder(const EncoderSpec& spec, const ParameterList& list,
                                         const std::vector<DataFormat>& formats,
                                         bool keeps_apart = false);

// As DecoderSpec::rope_tables.
std::vector<std::vector<float>> EncoderRopeTables(const EncoderSpec& spec);

// Addresses from places. `loaded`: the weights whose targets `list` names; they are not looked at.
DeviceEncoderWeights PlaceEncoderWeights(const EncoderSpec& spec, const ParameterList& list,
                                         const EncoderWeights& loaded,
                                         const DeviceWeightLayout& layout, std::byte* memory);

}  // namespace sluice
