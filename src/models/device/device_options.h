// Functions of ModelOptions for all models on devices.
#pragma once

#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/cuda/device_linear.h"
#include "models/model.h"
#include "models/weights.h"

namespace sluice {

// Products multiply BF16; plain weights are rounded to BF16.
inline constexpr ElementType kDeviceComputeType = ElementType::kBF16;

// kUnsupported names the option whose type devices do not support.
Status CheckDeviceOptions(const ModelOptions& options);

device::DeviceLinearOptions LinearOptionsOf(const ModelOptions& options);

// The format of each matrix of the list: as config.json gives it, and as in the checkpoint.
std::vector<DataFormat> PlannedFormats(const ParameterList& list, const QuantizationScheme& scheme);
Result<std::vector<DataFormat>> StoredFormats(const ParameterList& list,
                                              const Checkpoint& checkpoint,
                                              const QuantizationScheme& scheme);

}  // namespace sluice
