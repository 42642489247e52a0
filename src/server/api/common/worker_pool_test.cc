#include "server/api/common/worker_pool.h"

#include <algorithm>
#include <atomic>
#include <latch>
#include <new>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr size_t kLong = WorkerPool::kLongBytes + 1;

TEST(WorkerPoolTest, LongTasksDoNotHoldUpShortOnes) {
  WorkerPool pool(2);
  std::latch end(1), long_done(3), short_done(10);
  for (int i = 0; i < 3; ++i) {
    pool.Submit(
        [&] {
          end.wait();
          long_done.count_down();
        },
        kLong);
  }
  for (int i = 0; i < 10; ++i) pool.Submit([&] { short_done.count_down(); });
  short_done.wait();  // would never return if two long tasks ran
  EXPECT_FALSE(long_done.try_wait());
  end.count_down();
  long_done.wait();
}

TEST(WorkerPoolTest, TasksOfBothKindsRunInOrderOfArrival) {
  WorkerPool pool(1);
  std::latch begin(1), done(1);
  std::vector<int> order;
  pool.Submit([&] { begin.wait(); });
  for (int i = 0; i < 6; ++i)
    pool.Submit([&order, i] { order.push_back(i); }, i % 2 == 1 ? kLong : 0);
  pool.Submit([&] { done.count_down(); });
  begin.count_down();
  done.wait();
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(WorkerPoolTest, LongTasksTakeAtMostHalfOfTheThreads) {
  WorkerPool pool(4);
  std::latch end(1), done(5);
  std::atomic<int> running{0}, most{0};
  for (int i = 0; i < 5; ++i) {
    pool.Submit(
        [&] {
          most = std::max(most.load(), ++running);
          end.wait();
          --running;
          done.count_down();
        },
        kLong);
  }
  // Two short tasks run at the same time. The two threads run no long task meanwhile.
  std::latch both(2), short_done(2);
  for (int i = 0; i < 2; ++i) {
    pool.Submit([&] {
      both.arrive_and_wait();
      short_done.count_down();
    });
  }
  short_done.wait();
  end.count_down();
  done.wait();
  EXPECT_LE(most, 2);
}

TEST(WorkerPoolTest, TheShortestOfLongTasksIsNextAndEveryFourthTimeTheOldest) {
  WorkerPool pool(1);
  std::latch begin(1), done(1);
  std::vector<int> order;
  pool.Submit([&] { begin.wait(); });
  for (const int size : {9, 8, 3, 5, 1, 4})
    pool.Submit([&order, size] { order.push_back(size); }, kLong + static_cast<size_t>(size));
  pool.Submit([&] { done.count_down(); }, kLong + 10);
  begin.count_down();
  done.wait();
  EXPECT_THAT(order, ::testing::ElementsAre(1, 3, 4, 9, 5, 8));
}

TEST(WorkerPoolTest, ATaskThatThrowsEndsAlone) {
  WorkerPool pool(1);
  std::latch done(1);
  pool.Submit([] { throw std::bad_alloc(); });
  pool.Submit([] { throw std::runtime_error("no"); });
  pool.Submit([] { throw 7; });
  pool.Submit([&] { done.count_down(); });
  done.wait();
}

}  // namespace
}  // namespace sluice
