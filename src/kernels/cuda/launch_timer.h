// How long work takes on a device: for choosing between kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "device/device.h"

namespace sluice::device {

// Ownership: the device outlives it. Thread safety: one thread at a time.
class LaunchTimer {
 public:
  // Enqueues the work of one turn; false: it cannot be done.
  using Launch = std::function<bool(int64_t turn)>;

  static Result<LaunchTimer> Create(Device& device);

  // Seconds of one launch: the best of two rounds, each of which goes through all of `turns` (from
  // 1 up) operands, and four launches at least. What takes turns with other operands is not found
  // in the device's cache, as it would not be between the layers of a model. Infinite where a
  // launch cannot be done. There is no second round where the first took half again as long as
  // `to_be_beaten`. Waits for the stream; fails if it fails.
  Result<double> Seconds(DeviceStream& stream, int64_t turns, double to_be_beaten,
                         const Launch& launch);

 private:
  LaunchTimer(std::unique_ptr<DeviceEvent> begin, std::unique_ptr<DeviceEvent> end)
      : begin_(std::move(begin)), end_(std::move(end)) {}

  std::unique_ptr<DeviceEvent> begin_, end_;
};

}  // namespace sluice::device
