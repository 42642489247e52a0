// Makes the CUDA driver load kernels before they are launched.
#pragma once

#include <cstdlib>

namespace sluice {

// Call this before the first use of a GPU if several GPUs exchange data. Otherwise the driver loads
// each kernel at its first launch. Such a launch may wait for running kernels, and a kernel that
// exchanges data runs until the other GPUs reach it, which could deadlock. Sets
// CUDA_MODULE_LOADING=EAGER, unless the user has set that variable.
inline void LoadKernelsEagerly() {
  setenv("CUDA_MODULE_LOADING", "EAGER", /*replace=*/0);
}

}  // namespace sluice
