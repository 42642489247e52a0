#include "device/overlapping_launch.h"

#include <cuda_runtime_api.h>

namespace sluice {

int LaunchOverlapping(const OverlappingLaunch& launch) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(launch.grid_x, launch.grid_y, launch.grid_z);
  config.blockDim = dim3(launch.threads);
  config.dynamicSmemBytes = launch.shared_bytes;
  config.stream = static_cast<cudaStream_t>(launch.stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  void* args[] = {const_cast<void*>(launch.args)};
  const cudaError_t code = cudaLaunchKernelExC(&config, launch.kernel, args);
  if (code != cudaSuccess) cudaGetLastError();
  return code;
}

}  // namespace sluice
