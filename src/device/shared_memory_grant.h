// Leave for a kernel's blocks to take more shared memory than they may without asking. Compiled
// only into programs built with CUDA. Free of includes that the CUDA compiler would have to read in
// every kernel's file.
#pragma once

namespace sluice {

// From now on launches of `kernel` (as the CUDA runtime knows it) on `device`, the calling thread's
// current one, may take `bytes` of dynamic shared memory. The leave is the device's, whoever asked:
// a smaller one never takes back a larger one. Returns a cudaError_t, which is not left behind for
// a launch to find. Thread safe.
int GrantSharedMemory(const void* kernel, int device, unsigned bytes);

}  // namespace sluice
