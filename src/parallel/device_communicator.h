// What the ranks of a group say to each other where each has a device of its own: the contract of
// communicator.h, for arrays in the devices' memory. Exchanges are enqueued on the rank's stream
// and run in its order, between kernels; nothing is summed on the way.
//
// Failure: what cannot be enqueued throws GroupError. What was enqueued and does not come to its
// end fails the group of the host (Communicator::Fail), and is told by Wait: a rank that did not
// send its work within the deadline is named. A group that has failed stays so.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "device/device.h"
#include "parallel/communicator.h"
#include "parallel/nccl_library.h"

namespace sluice {

// One a rank. Thread safety: the rank's thread. Must not outlive the communicators that it was made
// with.
class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;

  // The pieces of the stage's ranks one after the other. sizes: bytes of each rank's, the same at
  // all of them; 0 is allowed. all: of all sizes together, apart from `mine`; written at `root` of
  // the stage alone where one is given.
  virtual void Gather(DeviceStream& stream, std::span<const int64_t> sizes, const void* mine,
                      void* all, std::optional<int> root = {}) = 0;

  // Between ranks of all stages, in the order of the calls.
  virtual void Send(DeviceStream& stream, const void* data, int64_t bytes, int to) = 0;
  virtual void Receive(DeviceStream& stream, void* data, int64_t bytes, int from) = 0;

  // In place of DeviceStream::Synchronize, which would wait for a lost rank without end. Throws
  // GroupError, or std::runtime_error with what the device reports.
  virtual void Wait(DeviceStream& stream) = 0;

  // Ends what waits for other ranks, so that the stream can be synchronized. To be followed by
  // Communicator::Fail where the group has not failed.
  virtual void Abort() = 0;
};

struct DeviceCommunicatorOptions {
  // How long a rank waits for the devices of the others, once its own work is sent.
  std::chrono::milliseconds deadline = std::chrono::minutes(5);
};

// A group over NCCL, or what has its functions (emulated_nccl.h). Called by all ranks of `all` at
// the same time, whose threads are of one process; `stage` is a Split of it for those that share a
// layer, null where there is one. `stream`: of the rank's device. Waits for the other ranks at most
// the deadline.
Result<std::unique_ptr<DeviceCommunicator>> MakeNcclGroup(const nccl::Functions& nccl,
                                                          Communicator& all, Communicator* stage,
                                                          DeviceStream& stream,
                                                          const DeviceCommunicatorOptions& options);

}  // namespace sluice
