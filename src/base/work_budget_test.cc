#include "base/work_budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "base/stack_thread.h"

namespace sluice {
namespace {

constexpr WorkLimits kLarge{.cpu_seconds = 1000, .bytes = int64_t{1} << 40};

// Makes allocations that the compiler cannot optimize away.
void AllocateAndFree(size_t bytes) {
  std::vector<std::unique_ptr<char[]>> blocks;
  blocks.push_back(std::make_unique<char[]>(bytes));
  volatile char* const memory = blocks.back().get();
  memory[0] = 1;
}

TEST(WorkBudgetTest, MemoryThatIsHeldCountsAndMemoryThatIsFreedDoesNot) {
  const WorkBudget budget({.cpu_seconds = 1000, .bytes = 1 << 20});
  for (int i = 0; i < 100; ++i) AllocateAndFree(100'000);
  EXPECT_THROW(AllocateAndFree(2 << 20), WorkLimitExceeded);
  EXPECT_NO_THROW(AllocateAndFree(100'000));
  std::vector<std::unique_ptr<char[]>> held;
  held.reserve(100);
  EXPECT_THROW(for (int i = 0; i < 100; ++i) held.push_back(std::make_unique<char[]>(100'000)),
               WorkLimitExceeded);
  EXPECT_GE(held.size(), 9u);
}

TEST(WorkBudgetTest, WorkThatTakesTooLongIsStopped) {
  const WorkBudget budget({.cpu_seconds = 0.02, .bytes = int64_t{1} << 40});
  EXPECT_THROW(while (true) AllocateAndFree(100), WorkLimitExceeded);
  // The statement must not allocate after the exception.
  EXPECT_THROW(for (int i = 0; i < 1000; ++i) AllocateAndFree(100), WorkLimitExceeded);
}

TEST(WorkBudgetTest, NothingIsLimitedOutsideAScopeOrOnOtherThreads) {
  { const WorkBudget budget({.cpu_seconds = 0, .bytes = 0}); }
  EXPECT_NO_THROW(AllocateAndFree(1 << 20));
  std::unique_ptr<std::thread> other;
  other = std::make_unique<std::thread>([] { EXPECT_NO_THROW(AllocateAndFree(8 << 20)); });
  {
    const WorkBudget budget(kLarge);
    other->join();
  }
}

TEST(WorkBudgetTest, AllocationsWhileAnExceptionIsOnItsWayAreAllowed) {
  struct Allocating {
    ~Allocating() { AllocateAndFree(4 << 20); }
  };
  const WorkBudget budget({.cpu_seconds = 1000, .bytes = 1 << 20});
  const auto work = [] {
    const Allocating last;
    AllocateAndFree(4 << 20);
  };
  EXPECT_THROW(work(), WorkLimitExceeded);
}

// Recurses until the budget stops the recursion. Each frame is used after the recursive call.
// Frames are large, so that a thousand fill a stack: the thread sanitizer copies the whole call
// stack at every allocation.
template <typename Work>
int Recurse(const Work& work, int depth) {
  volatile char frame[8 << 10] = {};
  work();
  const int deepest = depth == 1 << 30 ? depth : Recurse(work, depth + 1);
  return deepest + frame[depth % sizeof(frame)];
}

TEST(WorkBudgetTest, RecursionWithoutEndIsStopped) {
  const auto recurse = [] {
    const WorkBudget budget(kLarge);
    EXPECT_THROW(Recurse([] { AllocateAndFree(16); }, 0), StackLimitExceeded);
    EXPECT_THROW(Recurse([] { CheckStack(); }, 0), StackLimitExceeded);
    EXPECT_NO_THROW(AllocateAndFree(16));
  };
  recurse();
  std::thread(recurse).join();
  StackThread("recursion", size_t{2} << 20, recurse).Join();
}

TEST(WorkBudgetTest, ChecksOutsideAScopeDoNothing) {
  { const WorkBudget budget({.cpu_seconds = 0, .bytes = 0}); }
  EXPECT_NO_THROW(CheckStack());
}

// With the address or the thread sanitizer, the process ends if memory runs out.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(WorkBudgetTest, TheNewHandlerIsAskedBeforeAnAllocationFails) {
  static int num_asked = 0;
  const std::new_handler before = std::set_new_handler([] {
    if (++num_asked == 2) throw std::bad_alloc();
  });
  volatile size_t size = size_t{1} << 62;
  EXPECT_THROW(::operator delete(::operator new(size)), std::bad_alloc);
  std::set_new_handler(before);
  EXPECT_EQ(num_asked, 2);
}
#endif

}  // namespace
}  // namespace sluice
