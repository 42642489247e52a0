// Converts errors of the CUDA runtime to messages. Compiled only into programs built with CUDA.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "base/result.h"

namespace sluice {

// Returns whether this process can no longer use the device after this error.
bool IsFatalCudaError(cudaError_t code);

// Returns kInternal: "copying 12 bytes to the device: cudaErrorInvalidValue (invalid argument)",
// with advice if there is any.
Error CudaFailure(const std::string& purpose, cudaError_t code);

// Returns kUnsupported with the reason why no device can be used. `code`: result of
// cudaGetDeviceCount. `driver_version`: the version that the driver supports (0: no driver).
// `runtime_version`: the version that the program was built with.
Error NoCudaDevice(cudaError_t code, int driver_version, int runtime_version);

}  // namespace sluice
