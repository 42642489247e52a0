// How emulated kernels wait for memory that another emulated device writes.
#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

namespace sluice::emulated_wait {

// Called between two checks of the awaited value; null: nothing is called.
inline thread_local const std::function<void()>* between_looks = nullptr;

// A kernel that waits for a value calls this after each unsuccessful check. `look`: number of the
// check, counted from 0. The other device's kernels run on another host thread.
inline void Pause(unsigned look) {
  constexpr unsigned kEagerLooks = 64;
  if (between_looks != nullptr) (*between_looks)();
  if (look < kEagerLooks)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

// While this object lives, kernels that wait on the calling thread also call `look`, which may end
// their wait. An emulated kernel occupies its host thread, so the thread itself cannot look while
// the kernel runs.
class Scope {
 public:
  explicit Scope(std::function<void()> look) : look_(std::move(look)), before_(between_looks) {
    between_looks = &look_;
  }
  ~Scope() { between_looks = before_; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const std::function<void()> look_;
  const std::function<void()>* const before_;
};

}  // namespace sluice::emulated_wait
