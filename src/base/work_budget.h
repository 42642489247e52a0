// Limits what a piece of foreign code may use on a thread: processor time, memory and stack.
// work_budget.cc replaces the program's global `operator new` and `operator delete` for this.
// C++17: also included by the sources of foreign libraries.
#pragma once

#include <cstdint>
#include <new>

namespace sluice {

struct WorkLimits {
  double cpu_seconds = 0;
  int64_t bytes = 0;  // allocated and not yet freed by this thread, at any time
};

// Thrown by allocations; a std::bad_alloc, which code that allocates expects.
class WorkLimitExceeded : public std::bad_alloc {
 public:
  const char* what() const noexcept override;
};

// Thrown by allocations and by CheckStack if less than kStackReserve is left of the thread's stack.
class StackLimitExceeded : public WorkLimitExceeded {
 public:
  const char* what() const noexcept override;
};

// Stack left for code that neither allocates nor calls CheckStack, and for unwinding.
inline constexpr int64_t kStackReserve = int64_t{256} << 10;

// While it lives, `operator new` on this thread throws once a limit is exceeded. Code that does not
// allocate is stopped only at its next allocation or by CheckStack. Scopes do not nest.
class WorkBudget {
 public:
  explicit WorkBudget(const WorkLimits& limits);
  ~WorkBudget();
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;

  // Processor time of the thread since construction.
  double cpu_seconds() const;

 private:
  int64_t begin_nanoseconds_;
};

// The lowest address that the stack of this thread may reach; null outside a budget. `__thread`,
// because a `thread_local` of another file costs a call.
extern __thread const void* lowest_frame;
// Throws, unless an exception is already unwinding: destructors may go a little deeper.
void RefuseStack();

// For recursive foreign code that may not allocate: throws StackLimitExceeded. Costs a load, a
// comparison and a branch.
inline void CheckStack() {
  const void* here = nullptr;
#if defined(__x86_64__)
  asm("movq %%rsp, %0" : "=r"(here));  // __builtin_frame_address would cost a frame pointer
#elif defined(__aarch64__)
  asm("mov %0, sp" : "=r"(here));
#else
  here = __builtin_frame_address(0);
#endif
  if (__builtin_expect(here < lowest_frame, false)) RefuseStack();
}

}  // namespace sluice
