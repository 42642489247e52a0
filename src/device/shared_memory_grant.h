// Raises the limit of dynamic shared memory that a kernel's blocks may use above the default.
// Compiled only into programs built with CUDA. Free of includes that the CUDA compiler would have
// to read in every kernel's file.
#pragma once

namespace sluice {

// From now on launches of `kernel` (as the CUDA runtime knows it) on `device`, the calling thread's
// current one, may use `bytes` of dynamic shared memory. The limit belongs to the device and is
// never lowered. Returns a cudaError_t and clears the runtime's last error, so that no launch
// reports it. Thread safe.
int GrantSharedMemory(const void* kernel, int device, unsigned bytes);

}  // namespace sluice
