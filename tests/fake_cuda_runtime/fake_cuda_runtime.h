// A stand-in for the CUDA runtime, so that what the program does with its answers is tested where
// there is no GPU: a machine of two devices whose memory is the host's, whose calls can be made to
// fail, and which minds rules that a real one punishes late: every call that belongs to a device is
// made by a thread whose current device that is, every copy is between the right memories, and what
// a copy needs stays until it is through. Copies run as late as the runtime allows, when somebody
// waits for them, or at once: a program that is right cannot tell which. What a stream records,
// kernels with the arguments of their launch included, runs when its graph is launched, each time
// anew, and not before.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>

namespace fake_cuda {

// A kernel is a function of the host; its only argument is a struct.
struct FakeKernel {
  void (*run)(const void* args);
  size_t args_bytes;
};

struct Machine {
  int driver_version = 13010;
  int runtime_version = 13000;
  cudaError_t count_error = cudaSuccess;  // of cudaGetDeviceCount
  int num_devices = 2;
  int compute_major = 9, compute_minor = 0;
  size_t total_bytes = size_t{1} << 20;  // of each device
  bool is_integrated = false;            // each device's memory is the host's
  bool copies_at_once = false;           // what is enqueued runs before the call returns

  // The next call of the function fails so.
  std::map<std::string, cudaError_t> next;
  // Every call from now on fails so, as after an illegal address.
  cudaError_t sticky = cudaSuccess;

  bool has_links = true;  // whether devices may address each other's memory
  // Pairs (device, other) such that the device's kernels address the other's memory.
  std::set<std::pair<int, int>> peers;

  // By the address that launches name.
  std::map<const void*, FakeKernel> kernels;
  // What blocks of a kernel may take on a device.
  std::map<std::pair<const void*, int>, int> shared_bytes;

  int64_t num_alive = 0;         // buffers, streams, events and graphs
  int64_t num_late_uploads = 0;  // graphs that were launched before they were on the device
  int64_t num_wrong_device = 0;  // calls by a thread whose current device was another one
  // Memory that was freed, or no longer page-locked, before the copies and fills that use it were
  // through, and streams that were destroyed before they were.
  int64_t num_gone_too_early = 0;
};
Machine& TheMachine();
// A new one, without work that an old one left behind.
void ResetMachine();

// For kernels: whether kernels of the device may read and write these bytes.
bool Reaches(int device, const void* data, size_t bytes);

// What the calling thread's cudaGetLastError would return.
cudaError_t LeftBehind();

}  // namespace fake_cuda
