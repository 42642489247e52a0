// Limits the processor time, memory and stack that third-party code may use on a thread.
// work_budget.cc replaces the program's global `operator new` and `operator delete` for this. This
// header is C++17, because sources of third-party libraries also include it.
#pragma once

#include <cstdint>
#include <new>

namespace sluice {

struct WorkLimits {
  double cpu_seconds = 0;
  int64_t bytes = 0;  // limit of the bytes that this thread has allocated and not yet freed
};

// Thrown by allocations. It is a std::bad_alloc, because code that allocates expects that type.
class WorkLimitExceeded : public std::bad_alloc {
 public:
  const char* what() const noexcept override;
};

// Thrown by allocations and by CheckStack if less than kStackReserve is left of the thread's stack.
class StackLimitExceeded : public WorkLimitExceeded {
 public:
  const char* what() const noexcept override;
};

// Stack reserved for unwinding, and for code that does not allocate or call CheckStack.
inline constexpr int64_t kStackReserve = int64_t{256} << 10;

// During its lifetime, `operator new` on this thread throws once a limit is exceeded. Code that
// does not allocate is stopped only at its next allocation or by CheckStack. Budgets must not be
// nested.
class WorkBudget {
 public:
  explicit WorkBudget(const WorkLimits& limits);
  ~WorkBudget();
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;

  // Processor time that the thread has used since construction.
  double cpu_seconds() const;

 private:
  int64_t begin_nanoseconds_;
};

// The lowest address that this thread's stack may reach; null outside a budget. `__thread`, because
// a `thread_local` of another source file costs a function call.
extern __thread const void* lowest_frame;
// Throws StackLimitExceeded, unless an exception is already unwinding: destructors may use a little
// more stack.
void RefuseStack();

// For recursive third-party code that may not allocate: throws StackLimitExceeded if little stack
// is left. Costs a load, a comparison and a branch.
inline void CheckStack() {
  const void* here = nullptr;
#if defined(__x86_64__)
  asm("movq %%rsp, %0" : "=r"(here));  // __builtin_frame_address would need a frame pointer
#elif defined(__aarch64__)
  asm("mov %0, sp" : "=r"(here));
#else
  here = __builtin_frame_address(0);
#endif
  if (__builtin_expect(here < lowest_frame, false)) RefuseStack();
}

}  // namespace sluice
