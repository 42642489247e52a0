// Recognizes GPUs that use the host's memory.
#pragma once

#include "device/device.h"

namespace sluice {

// Whether the device is a GPU whose memory is the host's, as in DGX Spark (GB10). The driver's
// figure for its free memory does not include the page cache. False for emulated devices.
bool IsIntegratedGpu(const DeviceInfo& info);

}  // namespace sluice
