// Errors of the CUDA runtime as messages. Compiled only into programs built with CUDA.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "base/result.h"

namespace sluice {

// Whether the device is unusable for this process after this error.
bool IsFatalCudaError(cudaError_t code);

// kInternal: "copying 12 bytes to the device: cudaErrorInvalidValue (invalid argument)", with what
// to do where that is known.
Error CudaFailure(const std::string& purpose, cudaError_t code);

// Why there is no device to use: of cudaGetDeviceCount, with the versions that the driver supports
// (0: there is no driver) and that the program was built with. kUnsupported.
Error NoCudaDevice(cudaError_t code, int driver_version, int runtime_version);

}  // namespace sluice
