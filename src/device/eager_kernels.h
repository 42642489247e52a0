// Has the CUDA driver load kernels before they are launched.
#pragma once

#include <cstdlib>

namespace sluice {

// Call before the first use of a GPU if several GPUs exchange data: the driver otherwise loads each
// kernel at its first launch, which may wait for kernels that run, and those of an exchange wait
// for the other GPUs. Sets CUDA_MODULE_LOADING=EAGER, unless the user has set it.
inline void LoadKernelsEagerly() {
  setenv("CUDA_MODULE_LOADING", "EAGER", /*replace=*/0);
}

}  // namespace sluice
