#include "parallel/wait_word.h"

#include <algorithm>
#include <climits>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sluice {
namespace {

// Ranks reach a gather within some tens of microseconds of each other; waking a sleeping rank costs
// about as much.
constexpr auto kSpinTime = std::chrono::microseconds(100);
// Maximum time between a sleeper's checks of the counter and the deadline.
constexpr auto kLongestSleep = std::chrono::seconds(1);

void RelaxCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

uint32_t WaitWord::Advance() {
  const uint32_t value = word_.fetch_add(1, std::memory_order_seq_cst) + 1;
  // `sleepers_` and `word_` have a sequentially consistent order: either this thread sees the
  // sleeper, or the sleeper sees the new word.
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
              nullptr, 0);
  }
  return value;
}

bool WaitWord::WaitForChange(uint32_t seen, bool spin, std::optional<Clock::time_point> deadline) {
  if (Load() != seen) return true;
  if (spin) {
    const auto end = Clock::now() + kSpinTime;
    do {
      for (int i = 0; i < 16; ++i) {
        RelaxCpu();
        if (Load() != seen) return true;
      }
    } while (Clock::now() < end);
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  bool changed = false;
  while (!(changed = word_.load(std::memory_order_seq_cst) != seen)) {
    std::chrono::nanoseconds sleep = kLongestSleep;
    if (deadline) {
      const auto left = *deadline - Clock::now();
      if (left <= Clock::duration::zero()) break;
      sleep = std::min<std::chrono::nanoseconds>(sleep, left);
    }
    timespec timeout;
    timeout.tv_sec = static_cast<time_t>(sleep.count() / 1'000'000'000);
    timeout.tv_nsec = static_cast<long>(sleep.count() % 1'000'000'000);
    ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word_), FUTEX_WAIT_PRIVATE, seen, &timeout,
              nullptr, 0);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return changed;
}

}  // namespace sluice
