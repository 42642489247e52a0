// NVIDIA GPUs: an implementation of device.h. Compiled only into programs built with CUDA
// (SLUICE_CUDA); in others, OpenDevice and ListCudaDevices return an error.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"

namespace sluice {

Result<std::vector<DeviceInfo>> ExamineCudaDevices();         // implements ListCudaDevices
Result<std::unique_ptr<Device>> OpenCudaDevice(int ordinal);  // implements OpenDevice
bool IsIntegratedCudaDevice(int ordinal);                     // implements IsIntegratedGpu

}  // namespace sluice
