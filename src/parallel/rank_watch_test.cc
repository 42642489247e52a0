#include "parallel/rank_watch.h"

#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mutex.h"
#include "parallel/local_group.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

// One watch a rank, each with what it has told.
struct WatchedRank {
  std::promise<std::string> loss;
  std::promise<void> end;
  std::promise<std::string> line;
  std::unique_ptr<RankWatch> watch;
};

std::string Within(std::promise<std::string>& promise) {
  auto future = promise.get_future();
  if (future.wait_for(20s) != std::future_status::ready) return "nothing was told";
  return future.get();
}

std::vector<std::unique_ptr<WatchedRank>> Start(int size, int control = -1) {
  auto group = MakeLocalGroup({.size = size, .spin = false});
  std::vector<std::unique_ptr<WatchedRank>> ranks;
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i) ranks.push_back(std::make_unique<WatchedRank>());
  for (int i = 0; i < size; ++i) {
    threads.emplace_back([&, i] {
      WatchedRank& rank = *ranks[static_cast<size_t>(i)];
      RankWatchOptions options;
      options.beat = 20ms;
      options.control = i == 0 ? control : -1;
      options.on_line = [&rank](std::string_view line) { rank.line.set_value(std::string(line)); };
      options.on_loss = [&rank](const std::string& reason) { rank.loss.set_value(reason); };
      options.on_end = [&rank, done = false]() mutable {
        if (!std::exchange(done, true)) rank.end.set_value();
      };
      auto watch = RankWatch::Start(*group[static_cast<size_t>(i)], std::move(options));
      ASSERT_TRUE(watch) << watch.error().message;
      rank.watch = *std::move(watch);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

TEST(RankWatchTest, AProcessThatEndsIsNamedToAll) {
  auto ranks = Start(3);
  EXPECT_THAT(ranks[0]->watch->name(1), HasSubstr("rank 1 (process "));
  EXPECT_EQ(ranks[0]->watch->ranks_here(), 3);
  ranks[2]->watch.reset();
  const std::string reason = Within(ranks[0]->loss);
  EXPECT_THAT(reason, HasSubstr("rank 2 (process "));
  EXPECT_THAT(reason, HasSubstr("has ended without a word"));
  ranks[0]->watch->Announce(reason);
  EXPECT_EQ(Within(ranks[1]->loss), reason);
  // They stay until rank 0 has ended.
  ranks[1]->watch->Announce(reason);
  auto end = ranks[1]->end.get_future();
  EXPECT_EQ(end.wait_for(50ms), std::future_status::timeout);
  ranks[0]->watch.reset();
  EXPECT_EQ(end.wait_for(20s), std::future_status::ready);
}

TEST(RankWatchTest, AReasonTravelsFromAnyRankToAll) {
  auto ranks = Start(3);
  ranks[1]->watch->Announce("rank 1: it is too hot");
  EXPECT_EQ(Within(ranks[0]->loss), "rank 1: it is too hot");
  ranks[0]->watch->Announce("rank 1: it is too hot");
  EXPECT_EQ(Within(ranks[2]->loss), "rank 1: it is too hot");
}

TEST(RankWatchTest, RanksThatLeaveInOrderAreNoLoss) {
  auto ranks = Start(2);
  ranks[0]->watch->SayGoodbye();
  ranks[1]->watch->SayGoodbye();
  ranks[1]->watch.reset();
  auto loss = ranks[0]->loss.get_future();
  EXPECT_EQ(loss.wait_for(100ms), std::future_status::timeout);
}

TEST(RankWatchTest, TheLaunchersLinesAndItsEndAreHeard) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  auto ranks = Start(2, ends[0]);
  ASSERT_EQ(write(ends[1], "drain\n", 6), 6);
  EXPECT_EQ(Within(ranks[0]->line), "drain");
  close(ends[1]);
  EXPECT_THAT(Within(ranks[0]->loss), HasSubstr("the launcher has ended"));
  ranks.clear();
  close(ends[0]);
}

}  // namespace
}  // namespace sluice
