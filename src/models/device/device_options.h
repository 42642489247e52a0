// Functions on ModelOptions that are shared by all models on devices.
#pragma once

#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/cuda/device_linear.h"
#include "models/model.h"
#include "models/weights.h"

namespace sluice {

// Products on devices multiply BF16 numbers; plain weights are rounded to BF16.
inline constexpr ElementType kDeviceComputeType = ElementType::kBF16;

// Returns kUnsupported, naming the option, if an option has a type that devices do not support.
Status CheckDeviceOptions(const ModelOptions& options);

device::DeviceLinearOptions LinearOptionsOf(const ModelOptions& options);

// Returns the format of each matrix of the list: from config.json (PlannedFormats), or from the
// checkpoint.
std::vector<DataFormat> PlannedFormats(const ParameterList& list, const QuantizationScheme& scheme);
Result<std::vector<DataFormat>> StoredFormats(const ParameterList& list,
                                              const Checkpoint& checkpoint,
                                              const QuantizationScheme& scheme);

}  // namespace sluice
