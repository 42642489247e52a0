// A counter that threads wait on: they spin first, then sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace sluice {

class alignas(64) WaitWord {
 public:
  using Clock = std::chrono::steady_clock;

  uint32_t Load() const { return word_.load(std::memory_order_acquire); }
  // Increments the counter and wakes all sleepers. Returns the new value.
  uint32_t Advance();
  // Waits until the counter differs from `seen` and returns true, or until the deadline and returns
  // false; nullopt: no deadline. `spin`: whether to spin before sleeping.
  bool WaitForChange(uint32_t seen, bool spin, std::optional<Clock::time_point> deadline);

 private:
  std::atomic<uint32_t> word_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace sluice
