// A stand-in for the CUDA runtime, so that what the program does with its answers is tested where
// there is no GPU: a machine of two devices whose memory is the host's, whose calls can be made to
// fail, and which minds rules that a real one punishes late: every call that belongs to a device is
// made by a thread whose current device that is, and every copy is between the right memories.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <cuda_runtime_api.h>

namespace fake_cuda {

struct Machine {
  int driver_version = 13010;
  int runtime_version = 13000;
  cudaError_t count_error = cudaSuccess;  // of cudaGetDeviceCount
  int num_devices = 2;
  int compute_major = 9, compute_minor = 0;
  size_t total_bytes = size_t{1} << 20;  // of each device

  // The next call of the function fails so.
  std::map<std::string, cudaError_t> next;
  // Every call from now on fails so, as after an illegal address.
  cudaError_t sticky = cudaSuccess;

  int64_t num_alive = 0;         // buffers, streams and events
  int64_t num_wrong_device = 0;  // calls by a thread whose current device was another one
};
Machine& TheMachine();

// What the calling thread's cudaGetLastError would return.
cudaError_t LeftBehind();

}  // namespace fake_cuda
