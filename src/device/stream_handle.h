// What a launcher of kernels needs of a stream. Free of includes that the CUDA compiler would have
// to read in every kernel's file.
#pragma once

namespace sluice {

// The first launch of a stream that failed since its last Synchronize, and what was launched before
// it: a kernel's failure is told by whatever comes after it. Names live as long as the program.
struct LaunchFailure {
  static constexpr unsigned kRemembered = 8;

  const char* kernel = nullptr;
  int code = 0;  // cudaError_t
  // The last launches that succeeded: number i is at i % kRemembered.
  const char* launched[kRemembered] = {};
  unsigned num_launched = 0;
};

// Ownership: of the DeviceStream that gave it.
struct StreamHandle {
  void* native = nullptr;  // cudaStream_t, or the EmulatedQueue
  LaunchFailure* failure = nullptr;
};

}  // namespace sluice
