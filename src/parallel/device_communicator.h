// Exchanges between ranks that each have a device: the contract of communicator.h for arrays in
// device memory. Exchanges are enqueued on the rank's stream and run in order between kernels;
// nothing is summed in transit.
//
// Failure: an exchange that cannot be enqueued throws GroupError. An enqueued exchange that does
// not complete fails the host's group (Communicator::Fail), and Wait throws; the reason names the
// ranks that did not enqueue their work within the deadline. A failed group stays failed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "device/device.h"
#include "parallel/communicator.h"
#include "parallel/nccl_library.h"

namespace sluice {

// There is one per rank. Thread safety: used only by the rank's thread. Must not outlive the
// communicators from which it was made.
class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;

  // Concatenates the arrays of the stage's ranks. sizes: bytes of each rank, the same at all ranks;
  // 0 is allowed. all: the sum of `sizes` bytes, must not overlap `mine`; written only at rank
  // `root` of the stage if given.
  virtual void Gather(DeviceStream& stream, std::span<const int64_t> sizes, const void* mine,
                      void* all, std::optional<int> root = {}) = 0;

  // Exchange messages between ranks of all stages, in the order of the calls.
  virtual void Send(DeviceStream& stream, const void* data, int64_t bytes, int to) = 0;
  virtual void Receive(DeviceStream& stream, void* data, int64_t bytes, int from) = 0;

  // Replaces DeviceStream::Synchronize, which would wait for a lost rank forever. Throws
  // GroupError, or std::runtime_error with the device's error.
  virtual void Wait(DeviceStream& stream) = 0;

  // Throws GroupError if the group has failed. Call before a kernel that waits for other ranks is
  // launched.
  virtual void ThrowIfFailed() const = 0;

  // Returns whether `mine` is true at all ranks of the stage, which all call it. On the host.
  virtual bool AllAgree(bool mine) = 0;

  // Fails the host's group with `reason` if it is not empty. Then ends exchanges that wait for
  // other ranks, and kernels that read the word of DeviceCommunicatorOptions::stop, so that the
  // stream can be synchronized.
  virtual void Abort(const std::string& reason) = 0;
};

struct DeviceCommunicatorOptions {
  // How long a rank waits for the other ranks' devices after it has enqueued its own work.
  std::chrono::milliseconds deadline = std::chrono::minutes(5);
  // A page-locked uint32_t that all ranks share, initially 0. Kernels that wait for other ranks
  // read it and stop if it is 1. The rank that first detects a failure of the group sets it to 1,
  // because another rank may be blocked in a launch that waits for such a kernel. Null: there are
  // no such kernels.
  std::shared_ptr<DeviceBuffer> stop = nullptr;
};

// Ends the kernels of all ranks that wait for others (DeviceCommunicatorOptions::stop). REQUIRES:
// the group has failed, so that no rank uses the incomplete results of these kernels.
inline void StopKernels(const std::shared_ptr<DeviceBuffer>& stop) {
  if (stop != nullptr) std::atomic_ref(*stop->As<uint32_t>()).store(1, std::memory_order_release);
}

// Creates a group over NCCL or a library with the same functions (emulated_nccl.h). Called at the
// same time by all ranks of `all`, which are threads of one process. `stage`: the Split of `all`
// whose ranks share layers; null if it has one rank. `stream`: a stream of the rank's device. Waits
// for the other ranks at most the deadline.
Result<std::unique_ptr<DeviceCommunicator>> MakeNcclGroup(const nccl::Functions& nccl,
                                                          Communicator& all, Communicator* stage,
                                                          DeviceStream& stream,
                                                          const DeviceCommunicatorOptions& options);

}  // namespace sluice
