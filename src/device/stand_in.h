// Devices whose kernels run on the CPU.
#pragma once

#include "device/device.h"

namespace sluice {

// Whether the device is emulated: --device emulated, or a GPU of the fake HIP runtime
// (tests/fake_hip). Its kernels are slow and their times mean nothing. Thread safe.
bool RunsOnCpu(const DeviceInfo& info);

}  // namespace sluice
