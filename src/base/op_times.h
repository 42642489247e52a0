// Measures how long a model's operators take while it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace sluice {

struct OpTime {
  std::string op;  // includes the kernel variant if variants are counted separately
  int64_t calls = 0;
  double seconds = 0;  // sum over all calls
};

// Thread safety: all methods may be called from any thread. Models that run at the same time may
// share one OpTimes, which adds up their counts.
class OpTimes {
 public:
  // The totals of one operator.
  struct Count {
    std::string op;
    std::atomic<int64_t> calls = 0;
    std::atomic<int64_t> nanoseconds = 0;

    void Add(int64_t duration) {
      calls.fetch_add(1, std::memory_order_relaxed);
      nanoseconds.fetch_add(duration, std::memory_order_relaxed);
    }
  };

  // Returns the counter of the operator named `op`; its address stays valid. Allocates if the name
  // is new.
  Count& Of(std::string_view op);

  // Returns all operators that were called, in the order of their first Of().
  std::vector<OpTime> All() const;

 private:
  mutable Mutex mutex_;
  std::deque<Count> counts_ GUARDED_BY(mutex_);
};

// Returns one line per operator, longest time first: its share of the time, seconds, calls and
// name. Subtracts the counts of `before`, an earlier All() of the same object, from `now`, and
// omits operators that were not called in between.
std::vector<std::string> OpTimeLines(const std::vector<OpTime>& now,
                                     const std::vector<OpTime>& before);

}  // namespace sluice
