#include "server/api/worker_pool.h"

#include <latch>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(WorkerPoolTest, LongTasksDoNotHoldUpShortOnes) {
  WorkerPool pool(2);
  std::latch end(1), long_done(3), short_done(10);
  for (int i = 0; i < 3; ++i) {
    pool.Submit(
        [&] {
          end.wait();
          long_done.count_down();
        },
        /*is_long=*/true);
  }
  for (int i = 0; i < 10; ++i) pool.Submit([&] { short_done.count_down(); });
  short_done.wait();  // for ever, if two of the long ones ran
  EXPECT_FALSE(long_done.try_wait());
  end.count_down();
  long_done.wait();
}

TEST(WorkerPoolTest, TasksOfBothKindsRunInOrderOfArrival) {
  WorkerPool pool(1);
  std::latch begin(1), done(1);
  std::vector<int> order;
  pool.Submit([&] { begin.wait(); });
  for (int i = 0; i < 6; ++i) pool.Submit([&order, i] { order.push_back(i); }, i % 2 == 1);
  pool.Submit([&] { done.count_down(); });
  begin.count_down();
  done.wait();
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace sluice
