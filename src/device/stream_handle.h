// The part of a stream that kernel launchers need. Has no includes, which the CUDA compiler would
// have to read for every kernel file.
#pragma once

namespace sluice {

// A stream's first failed launch since its last Synchronize, and the launches before it. Those are
// recorded because a later call may report the failure of an earlier kernel. Names live as long as
// the program.
struct LaunchFailure {
  static constexpr unsigned kRemembered = 8;

  const char* kernel = nullptr;
  int code = 0;  // cudaError_t
  // The last launches that succeeded: number i is at i % kRemembered.
  const char* launched[kRemembered] = {};
  unsigned num_launched = 0;

  // Records the launch of kernel `name` with result `launch_code`, 0 if it succeeded. Has no effect
  // after a failed launch.
  void Record(const char* name, int launch_code) {
    if (kernel != nullptr) return;
    if (launch_code == 0) {
      launched[num_launched++ % kRemembered] = name;
    } else {
      kernel = name;
      code = launch_code;
    }
  }
};

// Ownership: belongs to the DeviceStream that returned it.
struct StreamHandle {
  void* native = nullptr;  // cudaStream_t, or the EmulatedQueue
  LaunchFailure* failure = nullptr;
  // Whether kernels with LaunchShape::overlaps may begin before kernels launched earlier end.
  bool overlaps = false;
};

}  // namespace sluice
