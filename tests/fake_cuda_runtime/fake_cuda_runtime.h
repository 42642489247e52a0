// A fake CUDA runtime, with which tests check without a GPU how the program handles the runtime's
// results. It simulates a machine with two devices, whose memory is host memory. Tests can make its
// calls fail.
//
// It checks rules whose violation a real runtime reports late or never. A call for a device must
// come from a thread whose current device it is. A copy must be between the right kinds of memory.
// The memory that a copy uses must exist until the copy is done.
//
// Copies run either when a caller waits for them, or immediately; a correct program cannot tell the
// difference. Work that a stream records runs each time its graph is launched, and not before. This
// includes kernels, with the arguments of their launch.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>

namespace fake_cuda {

// A kernel is a function of the host, with a struct as its only argument.
struct FakeKernel {
  void (*run)(const void* args);
  size_t args_bytes;
};

struct Machine {
  int driver_version = 13010;
  int runtime_version = 13000;
  cudaError_t count_error = cudaSuccess;  // result of cudaGetDeviceCount
  int num_devices = 2;
  int compute_major = 9, compute_minor = 0;
  size_t total_bytes = size_t{1} << 20;  // memory of each device
  bool is_integrated = false;            // whether each device's memory is host memory
  bool copies_at_once = false;           // whether enqueued work runs before the call returns

  // Error of the next call of a function, by name.
  std::map<std::string, cudaError_t> next;
  // Error of every later call, as after an illegal address.
  cudaError_t sticky = cudaSuccess;

  bool has_links = true;  // whether devices may address each other's memory
  // Pairs (device, other) such that the device's kernels address the other's memory.
  std::set<std::pair<int, int>> peers;

  // Kernels, keyed by the address that launches pass.
  std::map<const void*, FakeKernel> kernels;
  // Maximum shared memory that blocks of a kernel may use on a device.
  std::map<std::pair<const void*, int>, int> shared_bytes;

  int64_t num_alive = 0;         // buffers, streams, events and graphs
  int64_t num_late_uploads = 0;  // graphs that were launched before they were on the device
  int64_t num_overlapping = 0;   // launches of kernels that may begin before earlier ones end
  int64_t num_wrong_device = 0;  // calls by a thread whose current device was another one
  // Counts memory that was freed, or no longer page-locked, before the copies and fills that use it
  // were done. Also counts streams that were destroyed before their work was done.
  int64_t num_gone_too_early = 0;
};
Machine& TheMachine();
// Replaces the machine by a new one without pending work.
void ResetMachine();

// For kernels: returns whether kernels of the device may read and write these bytes.
bool Reaches(int device, const void* data, size_t bytes);

// Returns what the calling thread's cudaGetLastError would return.
cudaError_t LeftBehind();

}  // namespace fake_cuda
