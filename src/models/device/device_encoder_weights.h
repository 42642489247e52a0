// Offsets of an encoder's parameters on a device.
#pragma once

#include <vector>

#include "base/result.h"
#include "models/device/device_weights.h"
#include "models/encoder/encoder_spec.h"

namespace sluice {

// Returns offsets of the parameters of `list` in one allocation. `formats`: as in
// DeviceWeightLayout::For. kUnsupported names a matrix that no kernel supports.
Result<DeviceWeightLayout> LayOutEncoder(const EncoderSpec& spec, const ParameterList& list,
                                         const std::vector<DataFormat>& formats,
                                         bool keeps_apart = false);

// Returns tables as in DecoderSpec::rope_tables.
std::vector<std::vector<float>> EncoderRopeTables(const EncoderSpec& spec);

}  // namespace sluice
