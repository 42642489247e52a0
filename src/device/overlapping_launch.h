// Launches a kernel that may begin before the kernels launched earlier on its stream end
// (programmatic dependent launch, from compute capability 9.0 on). Compiled only into programs
// built with CUDA. Has no includes, which the CUDA compiler would have to read for every kernel
// file.
#pragma once

namespace sluice {

struct OverlappingLaunch {
  const void* kernel;  // the CUDA runtime's handle
  unsigned grid_x, grid_y, grid_z, threads, shared_bytes;
  void* stream;
  const void* args;  // the kernel's only argument
};

// Returns a cudaError_t and clears the runtime's last error, so that no other launch reports it.
// REQUIRES: StreamHandle::overlaps. Thread safe.
int LaunchOverlapping(const OverlappingLaunch& launch);

}  // namespace sluice
