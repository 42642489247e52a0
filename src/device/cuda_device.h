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

// Returns whether kernels on this device may begin before earlier kernels end
// (StreamHandle::overlaps): true from compute capability 9.0 on, unless SLUICE_KERNEL_OVERLAP is 0.
// kInvalidArgument if the variable is neither 0 nor 1.
Result<bool> OverlapsKernels(const DeviceInfo& info);

}  // namespace sluice
