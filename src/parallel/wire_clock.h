// The clock that ranks use when they wait for one another: the machine's, or a simulated one
// (fake_wire_testing.h).
#pragma once

#include <chrono>

namespace sluice {

// Thread safety: any thread.
class WireClock {
 public:
  using Duration = std::chrono::nanoseconds;

  virtual ~WireClock() = default;

  // Returns the time since an arbitrary origin; monotonic.
  virtual Duration Now() = 0;
  // Yields to other threads; sleeps for `pause` if it is positive.
  virtual void Pause(Duration pause) = 0;

  static WireClock& Machine();
};

}  // namespace sluice
