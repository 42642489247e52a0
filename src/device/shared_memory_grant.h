// Raises the limit of dynamic shared memory per block of a kernel above the default. Compiled only
// into programs built with CUDA. Has no includes, which the CUDA compiler would have to read for
// every kernel file.
#pragma once

namespace sluice {

// Allows later launches of `kernel` (the CUDA runtime's handle) on `device`, the calling thread's
// current one, to use `bytes` of dynamic shared memory. The limit is per device and never lowered.
// Returns a cudaError_t and clears the runtime's last error, so that no launch reports it. Thread
// safe.
int GrantSharedMemory(const void* kernel, int device, unsigned bytes);

}  // namespace sluice
