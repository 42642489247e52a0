// NVIDIA GPUs behind the contract of device.h. Compiled only into programs built with CUDA
// (SLUICE_CUDA); others call OpenDevice and ListCudaDevices, which refuse there.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"

namespace sluice {

Result<std::vector<DeviceInfo>> ExamineCudaDevices();         // of ListCudaDevices
Result<std::unique_ptr<Device>> OpenCudaDevice(int ordinal);  // of OpenDevice

}  // namespace sluice
