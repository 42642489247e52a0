// Tells GPUs that have no memory of their own.
#pragma once

#include "device/device.h"

namespace sluice {

// Whether the device is a GPU whose memory is the host's, as in DGX Spark (GB10). Its free memory
// then does not include what the page cache holds. False for emulated devices.
bool IsIntegratedGpu(const DeviceInfo& info);

}  // namespace sluice
