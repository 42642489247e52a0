#include "base/work_budget.h"

#include <malloc.h>
#include <pthread.h>
#include <time.h>

#include <cstdlib>
#include <exception>

#include "base/check.h"

namespace sluice {
namespace {

// Number of allocations between two readings of the clock; each reading is a system call.
constexpr int kAllocationsPerLook = 64;

struct ThreadBudget {
  bool is_active = false;
  int until_look = 0;
  int64_t bytes_left = 0;
  int64_t end_nanoseconds = 0;
};

thread_local constinit ThreadBudget budget;
thread_local constinit const char* lowest_stack = nullptr;  // lowest address of this thread's
                                                            // stack; null until known

int64_t ThreadNanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// The lowest address that this thread's stack may reach within a budget.
const char* LowestFrame() {
  if (lowest_stack == nullptr) {
    pthread_attr_t attributes;
    void* lowest = nullptr;
    size_t size = 0;
    CHECK_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
    pthread_attr_getstack(&attributes, &lowest, &size);
    pthread_attr_destroy(&attributes);
    lowest_stack = static_cast<const char*>(lowest);
  }
  return lowest_stack + kStackReserve;
}

void* TryAllocate(size_t size, size_t alignment) {
  if (size == 0) size = 1;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

bool IsExceeded() {
  if (budget.bytes_left < 0) return true;
  if (--budget.until_look > 0) return false;
  budget.until_look = kAllocationsPerLook;
  if (ThreadNanoseconds() < budget.end_nanoseconds) return false;
  budget.until_look = 0;  // makes every later allocation check again
  return true;
}

void* Allocate(size_t size, size_t alignment) {
  void* memory = TryAllocate(size, alignment);
  while (memory == nullptr) {
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
    memory = TryAllocate(size, alignment);
  }
  if (!budget.is_active) return memory;
  budget.bytes_left -= static_cast<int64_t>(malloc_usable_size(memory));
  const bool is_too_deep = __builtin_frame_address(0) < lowest_frame;
  // Allocations made while an exception unwinds must not throw a second one.
  if ((is_too_deep || IsExceeded()) && std::uncaught_exceptions() == 0) {
    budget.bytes_left += static_cast<int64_t>(malloc_usable_size(memory));
    std::free(memory);
    if (is_too_deep) throw StackLimitExceeded();
    throw WorkLimitExceeded();
  }
  return memory;
}

void Free(void* memory) {
  if (budget.is_active && memory != nullptr)
    budget.bytes_left += static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

__thread const void* lowest_frame = nullptr;

void RefuseStack() {
  if (std::uncaught_exceptions() == 0) throw StackLimitExceeded();
}

const char* WorkLimitExceeded::what() const noexcept {
  return "the limit of time or memory was exceeded";
}

const char* StackLimitExceeded::what() const noexcept {
  return "the limit of stack was exceeded";
}

WorkBudget::WorkBudget(const WorkLimits& limits) : begin_nanoseconds_(ThreadNanoseconds()) {
  CHECK(!budget.is_active);
  budget.bytes_left = limits.bytes;
  budget.end_nanoseconds = begin_nanoseconds_ + static_cast<int64_t>(limits.cpu_seconds * 1e9);
  budget.until_look = kAllocationsPerLook;
  budget.is_active = true;
  lowest_frame = LowestFrame();
}

WorkBudget::~WorkBudget() {
  lowest_frame = nullptr;
  budget.is_active = false;
}

double WorkBudget::cpu_seconds() const {
  return static_cast<double>(ThreadNanoseconds() - begin_nanoseconds_) * 1e-9;
}

}  // namespace sluice

// The global operators of the program. The standard library's other forms call these. The array and
// nothrow forms are defined too, because a sanitizer would otherwise provide its own.
void* operator new(size_t size) {
  return sluice::Allocate(size, alignof(std::max_align_t));
}
void* operator new(size_t size, std::align_val_t alignment) {
  return sluice::Allocate(size, static_cast<size_t>(alignment));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return sluice::Allocate(size, alignof(std::max_align_t));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](size_t size) {
  return operator new(size);
}
void* operator new[](size_t size, const std::nothrow_t& nothrow) noexcept {
  return operator new(size, nothrow);
}
void operator delete(void* memory) noexcept {
  sluice::Free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  sluice::Free(memory);
}
void operator delete[](void* memory) noexcept {
  sluice::Free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  sluice::Free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  sluice::Free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  sluice::Free(memory);
}
