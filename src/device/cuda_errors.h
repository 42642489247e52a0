// Errors of the CUDA runtime as messages. Compiled only into programs built with CUDA.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "base/result.h"

namespace sluice {

// Whether the device is unusable for this process after this error.
bool IsFatalCudaError(cudaError_t code);

// kInternal: "copying 12 bytes to the device: cudaErrorInvalidValue (invalid argument)", with
// advice if there is any.
Error CudaFailure(const std::string& purpose, cudaError_t code);

// kUnsupported: why there is no usable device. `code`: of cudaGetDeviceCount; the versions:
// supported by the driver (0: no driver), and used to build the program.
Error NoCudaDevice(cudaError_t code, int driver_version, int runtime_version);

}  // namespace sluice
