// The time in which ranks wait for each other, and how a rank lets it pass: the machine's, or that
// of a simulation (fake_wire_testing.h).
#pragma once

#include <chrono>

namespace sluice {

// Thread safety: any thread.
class WireClock {
 public:
  using Duration = std::chrono::nanoseconds;

  virtual ~WireClock() = default;

  // Since some moment; never goes back.
  virtual Duration Now() = 0;
  // Lets others run; sleeps so long where that is more than nothing.
  virtual void Pause(Duration pause) = 0;

  static WireClock& Machine();
};

}  // namespace sluice
