#include "base/fair_mutex.h"

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;

TEST(FairMutexTest, WhoCameFirstIsNextAlsoWhereTheHolderWantsItAgain) {
  FairMutex mutex;
  std::vector<int> order;
  const auto note = [&](int who) {
    const FairMutexLock lock(mutex);
    order.push_back(who);
  };
  std::vector<std::thread> threads;
  {
    const FairMutexLock lock(mutex);
    for (int i = 1; i <= 4; ++i) {
      threads.emplace_back(note, i);
      while (mutex.num_waiting() < i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    order.push_back(0);
  }
  note(5);
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(mutex.num_waiting(), 0);
}

}  // namespace
}  // namespace sluice
