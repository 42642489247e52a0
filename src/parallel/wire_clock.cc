#include "parallel/wire_clock.h"

#include <sched.h>

#include <thread>

namespace sluice {
namespace {

class MachineClock final : public WireClock {
 public:
  Duration Now() override { return std::chrono::steady_clock::now().time_since_epoch(); }
  void Pause(Duration pause) override {
    if (pause > Duration::zero())
      std::this_thread::sleep_for(pause);
    else
      sched_yield();
  }
};

}  // namespace

WireClock& WireClock::Machine() {
  static MachineClock clock;
  return clock;
}

}  // namespace sluice
