// What a launcher of kernels needs of a stream. Free of includes that the CUDA compiler would have
// to read in every kernel's file.
#pragma once

namespace sluice {

// The first launch of a stream that failed since its last Synchronize.
struct LaunchFailure {
  const char* kernel = nullptr;  // a string that lives as long as the program
  int code = 0;                  // cudaError_t
};

// Ownership: of the DeviceStream that gave it.
struct StreamHandle {
  void* native = nullptr;  // cudaStream_t, or the EmulatedQueue
  LaunchFailure* failure = nullptr;
};

}  // namespace sluice
