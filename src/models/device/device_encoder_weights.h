// Where the parameters of an encoder lie on a device.
#pragma once

#include <vector>

#include "base/result.h"
#include "models/device/device_weights.h"
#include "models/encoder/encoder_spec.h"

namespace sluice {

// Where the parameters of `list` lie in one allocation. `formats` as of DeviceWeightLayout::For;
// kUnsupported names a matrix that no kernel takes.
Result<DeviceWeightLayout> LayOutEncoder(const EncoderSpec& spec, const ParameterList& list,
                                         const std::vector<DataFormat>& formats,
                                         bool keeps_apart = false);

// As DecoderSpec::rope_tables.
std::vector<std::vector<float>> EncoderRopeTables(const EncoderSpec& spec);

}  // namespace sluice
