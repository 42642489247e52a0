// Launches a HIP kernel. Includes no other headers of this program, because Clang reads this file
// for every kernel file.
#pragma once

#include <stddef.h>

namespace sluice {

struct HipLaunch {
  const void* kernel;  // the address of the kernel's handle on the host
  unsigned grid_x, grid_y, grid_z;
  unsigned threads;
  unsigned shared_bytes;
  void* stream;
  const void* args;  // the kernel's only argument
};

// Launches on the calling thread's current device. Returns the HIP runtime's error code; 0: no
// error. REQUIRES: LoadHipKernels (hip_modules.h) has loaded this device's kernels.
int LaunchHipKernel(const HipLaunch& launch);

}  // namespace sluice
