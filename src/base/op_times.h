// How long operators of a model take, counted while it runs.
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
  std::string op;  // operators that are told apart have different names
  int64_t calls = 0;
  double seconds = 0;  // of all calls together
};

// Thread safety: all methods may be called from any thread. Models that run at the same time may
// share one; what they count is added up.
class OpTimes {
 public:
  // What is counted of one operator.
  struct Count {
    std::string op;
    std::atomic<int64_t> calls = 0;
    std::atomic<int64_t> nanoseconds = 0;

    void Add(int64_t duration) {
      calls.fetch_add(1, std::memory_order_relaxed);
      nanoseconds.fetch_add(duration, std::memory_order_relaxed);
    }
  };

  // That of the operator of this name; stays where it is. Allocates for a name that is new.
  Count& Of(std::string_view op);

  // In the order in which they were asked for, without those that were never called.
  std::vector<OpTime> All() const;

 private:
  mutable Mutex mutex_;
  std::deque<Count> counts_ GUARDED_BY(mutex_);
};

// A line for each operator of `now`, the longest first: its share of the time, seconds, calls and
// name. What `before`, an earlier All() of the same object, has counted is taken off, and operators
// that were not called since are left out.
std::vector<std::string> OpTimeLines(const std::vector<OpTime>& now,
                                     const std::vector<OpTime>& before);

}  // namespace sluice
