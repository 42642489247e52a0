// A counter that threads wait for: first spinning, then asleep.
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
  // Adds one and wakes whoever sleeps. Returns the new value.
  uint32_t Advance();
  // Returns once `word != seen`, or false when the deadline is over; nullopt: none.
  bool WaitForChange(uint32_t seen, bool spin, std::optional<Clock::time_point> deadline);

 private:
  std::atomic<uint32_t> word_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace sluice
