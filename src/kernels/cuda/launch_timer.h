// Measures the duration of work on a device, to choose between kernels.
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
  // Enqueues one launch with operand set `turn`. Returns false if the launch is impossible.
  using Launch = std::function<bool(int64_t turn)>;

  static Result<LaunchTimer> Create(Device& device);

  // Returns the seconds per launch, the better of two rounds. Each round makes at least four
  // launches and cycles through all `turns` (at least 1) sets of operands. As in a model, where
  // other layers run in between, the operands are then not in the device's cache. Infinite if a
  // launch is impossible. Skips the second round if the first took more than 1.5 times
  // `to_be_beaten`. Waits for the stream; fails if the stream fails.
  Result<double> Seconds(DeviceStream& stream, int64_t turns, double to_be_beaten,
                         const Launch& launch);

 private:
  LaunchTimer(std::unique_ptr<DeviceEvent> begin, std::unique_ptr<DeviceEvent> end)
      : begin_(std::move(begin)), end_(std::move(end)) {}

  std::unique_ptr<DeviceEvent> begin_, end_;
};

}  // namespace sluice::device
