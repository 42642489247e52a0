// Implements device.h for a GPU with a vendor's runtime (gpu_runtime.h).
#pragma once

#include <memory>

#include "device/device.h"
#include "device/gpu_runtime.h"

namespace sluice {

// Makes the device of `info` the one that the runtime uses, which creates the driver's context: the
// first call that can fail. `runtime` outlives the device. `overlaps`: StreamHandle::overlaps of
// its streams.
Result<std::unique_ptr<Device>> OpenGpuDevice(const GpuRuntime& runtime, const DeviceInfo& info,
                                              bool overlaps = false);

}  // namespace sluice
