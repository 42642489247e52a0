// AMD GPUs: an implementation of device.h over HIP's runtime. Compiled into every program. Only
// programs built with SLUICE_HIP have kernels; in others, OpenDevice returns an error.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace sluice {

Result<std::vector<DeviceInfo>> ExamineHipDevices();         // implements ListHipDevices
Result<std::unique_ptr<Device>> OpenHipDevice(int ordinal);  // implements OpenDevice

// Returns the name of the architecture, such as "gfx950". REQUIRES: info.kind is kHip.
std::string HipArchitecture(const DeviceInfo& info);

}  // namespace sluice
