// Bounds what a piece of foreign code may spend on a thread: processor time and memory.
#pragma once

#include <cstdint>
#include <new>

namespace sluice {

struct WorkLimits {
  double cpu_seconds = 0;
  int64_t bytes = 0;  // allocated and not freed by this thread, at any moment
};

// Thrown out of an allocation, as code that allocates expects.
class WorkLimitExceeded : public std::bad_alloc {
 public:
  const char* what() const noexcept override;
};

// While it lives, `operator new` on this thread throws WorkLimitExceeded once a limit is passed.
// Code that computes without allocating is not stopped before it allocates again. Scopes do not
// nest.
class WorkBudget {
 public:
  explicit WorkBudget(const WorkLimits& limits);
  ~WorkBudget();
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;
};

}  // namespace sluice
