#include "parallel/local_group.h"

#include <atomic>
#include <functional>
#include <numeric>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using Task = std::function<void(Communicator&)>;

// Runs `task` on one thread per rank. Returns each rank's exception message; empty if it threw
// none.
std::vector<std::string> RunRanks(const LocalGroupOptions& options, const Task& task) {
  const auto ranks = MakeLocalGroup(options);
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        task(*ranks[i]);
      } catch (const GroupError& error) {
        errors[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<std::string> NoErrors(size_t size) {
  return std::vector<std::string>(size);
}

// Element (row, column) of an array that is different in every round.
uint8_t Element(int64_t round, int64_t row, int64_t column) {
  return static_cast<uint8_t>(round * 131 + row * 17 + column * 7);
}

TEST(LocalGroupTest, GathersUnevenColumnsInManyRounds) {
  const std::vector<int64_t> widths = {3, 0, 5, 1};
  const auto errors = RunRanks({.size = 4, .spin = false}, [&](Communicator& rank) {
    ThreadPool pool(2);
    for (int64_t round = 0; round < 300; ++round) {
      const int64_t rows = round % 4;
      const int64_t width = widths[static_cast<size_t>(rank.rank())];
      int64_t first = 0;
      for (int i = 0; i < rank.rank(); ++i) first += widths[static_cast<size_t>(i)];
      std::vector<uint8_t> mine;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < width; ++i) mine.push_back(Element(round, row, first + i));
      }
      std::vector<uint8_t> all(static_cast<size_t>(rows * 9));
      rank.Gather(pool, widths, rows, mine.data(), all.data());
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < 9; ++i)
          ASSERT_EQ(all[static_cast<size_t>(row * 9 + i)], Element(round, row, i));
      }
    }
  });
  EXPECT_EQ(errors, NoErrors(4));
}

TEST(LocalGroupTest, GathersLargeArraysByAllThreads) {
  const std::vector<int64_t> widths = {int64_t{1} << 20, int64_t{1} << 19};
  const auto errors = RunRanks({.size = 2}, [&](Communicator& rank) {
    ThreadPool pool(2);
    const auto width = static_cast<size_t>(widths[static_cast<size_t>(rank.rank())]);
    const std::vector<char> mine(3 * width, rank.rank() == 0 ? 'a' : 'b');
    std::vector<char> all(size_t{9} << 19);
    rank.Gather(pool, widths, 3, mine.data(), all.data());
    for (size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(all[i], i % (size_t{3} << 19) < (size_t{1} << 20) ? 'a' : 'b');
  });
  EXPECT_EQ(errors, NoErrors(2));
}

TEST(LocalGroupTest, GathersAtOneRankAlone) {
  const auto errors = RunRanks({.size = 3}, [&](Communicator& rank) {
    ThreadPool pool(1);
    const std::vector<int64_t> widths = {1, 1, 1};
    const char mine = static_cast<char>('a' + rank.rank());
    std::string all(3, '-');
    rank.Gather(pool, widths, 1, &mine, rank.rank() == 1 ? all.data() : nullptr, 1);
    EXPECT_EQ(all, rank.rank() == 1 ? "abc" : "---");
  });
  EXPECT_EQ(errors, NoErrors(3));
}

TEST(LocalGroupTest, BroadcastsAndPassesOn) {
  const auto errors = RunRanks({.size = 3}, [](Communicator& rank) {
    for (int round = 0; round < 100; ++round) {
      int value = rank.rank() == 1 ? round : -1;
      rank.Broadcast(&value, sizeof(value), 1, Patience::kIdle);
      ASSERT_EQ(value, round);
      // Passes a value around the ring; each rank adds one.
      const int next = (rank.rank() + 1) % 3, last = (rank.rank() + 2) % 3;
      if (rank.rank() > 0) rank.Receive(&value, sizeof(value), last);
      ++value;
      rank.Send(&value, sizeof(value), next);
      if (rank.rank() == 0) {
        rank.Receive(&value, sizeof(value), last);
        ASSERT_EQ(value, round + 3);
      }
    }
  });
  EXPECT_EQ(errors, NoErrors(3));
}

TEST(LocalGroupTest, PostedMessagesWaitForNobody) {
  std::atomic<bool> may_receive{false};
  const auto errors = RunRanks({.size = 2}, [&](Communicator& rank) {
    constexpr int kCount = 100;  // more than kMostPosted messages
    if (rank.rank() == 0) {
      std::vector<int> values(kCount);
      std::iota(values.begin(), values.end(), 0);
      for (int i = 0; i < 3; ++i) rank.Post(&values[static_cast<size_t>(i)], sizeof(int), 1);
      rank.AwaitPosted(1, 3);
      may_receive = true;
      for (int i = 3; i < kCount; ++i) rank.Post(&values[static_cast<size_t>(i)], sizeof(int), 1);
      rank.AwaitPosted(1, 0);
      std::fill(values.begin(), values.end(), -1);
    } else {
      while (!may_receive) std::this_thread::yield();
      for (int i = 0; i < kCount; ++i) {
        int value = -1;
        rank.Receive(&value, sizeof(value), 0, Patience::kIdle);
        ASSERT_EQ(value, i);
      }
    }
  });
  EXPECT_EQ(errors, NoErrors(2));
}

TEST(LocalGroupTest, SplitsIntoGroupsOfTheirOwn) {
  const auto errors = RunRanks({.size = 5}, [](Communicator& world) {
    ThreadPool pool(1);
    const bool is_low = world.rank() < 2;
    const auto group = is_low ? world.Split(0, 2) : world.Split(2, 3);
    EXPECT_EQ(group->size(), is_low ? 2 : 3);
    EXPECT_EQ(group->rank(), is_low ? world.rank() : world.rank() - 2);
    for (int round = 0; round < 50; ++round) {
      const std::vector<int64_t> widths(static_cast<size_t>(group->size()), 1);
      const char mine = static_cast<char>('a' + world.rank());
      std::string all(widths.size(), '-');
      group->Gather(pool, widths, 1, &mine, all.data());
      ASSERT_EQ(all, is_low ? "ab" : "cde");
    }
  });
  EXPECT_EQ(errors, NoErrors(5));
}

TEST(LocalGroupTest, OneRankNeedsNoOther) {
  const auto errors = RunRanks({.size = 1}, [](Communicator& rank) {
    ThreadPool pool(1);
    const std::vector<int64_t> widths = {2};
    std::string all(4, '-');
    rank.Gather(pool, widths, 2, "abcd", all.data());
    EXPECT_EQ(all, "abcd");
    rank.Broadcast(all.data(), 4, 0, Patience::kStep);
  });
  EXPECT_EQ(errors, NoErrors(1));
}

TEST(LocalGroupTest, ARankThatDoesNotComeIsNamed) {
  const LocalGroupOptions options{.size = 2, .deadline = std::chrono::milliseconds(50)};
  const auto errors = RunRanks(options, [](Communicator& rank) {
    ThreadPool pool(1);
    const std::vector<int64_t> widths = {1, 1};
    while (rank.rank() == 1 && rank.failure().empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    char mine = 'a', all[2];
    rank.Gather(pool, widths, 1, &mine, all);
  });
  EXPECT_EQ(errors[0], "rank 1 did not reach a gather within 0.05 s, where rank 0 waits");
  EXPECT_EQ(errors[1], errors[0]) << "whoever comes late hears the same";
}

TEST(LocalGroupTest, ASenderWithoutReceiverIsTold) {
  const LocalGroupOptions options{.size = 2, .deadline = std::chrono::milliseconds(50)};
  const auto errors = RunRanks(options, [](Communicator& rank) {
    char value = 'a';
    if (rank.rank() == 0) rank.Send(&value, 1, 1);
  });
  EXPECT_THAT(errors[0], ::testing::HasSubstr("rank 1 did not receive within 0.05 s"));
}

TEST(LocalGroupTest, AFailureReachesAllThatWaitAndAllThatCome) {
  const auto errors = RunRanks({.size = 4}, [](Communicator& world) {
    const auto group = world.Split(world.rank() / 2 * 2, 2);
    int value = 0;
    switch (world.rank()) {
      case 0: group->Broadcast(&value, sizeof(value), 1, Patience::kIdle); break;
      case 1: world.Receive(&value, sizeof(value), 3); break;
      case 2: group->Broadcast(&value, sizeof(value), 1, Patience::kIdle); break;
      case 3:
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_EQ(group->failure(), "");
        group->Fail("out of memory");
        world.Fail("too late");
        EXPECT_EQ(world.failure(), "rank 3: out of memory");
        world.Send(&value, sizeof(value), 2);
        break;
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(4, "rank 3: out of memory"));
}

TEST(LocalGroupTest, UnlikeSizesFailTheGroup) {
  const auto errors = RunRanks({.size = 2}, [](Communicator& rank) {
    int64_t value = 0;
    if (rank.rank() == 0) rank.Send(&value, 8, 1);
    if (rank.rank() == 1) rank.Receive(&value, 4, 0);
  });
  EXPECT_EQ(errors[0], "rank 1: expected 4 bytes of rank 0, which sent 8");
  EXPECT_EQ(errors[1], errors[0]);
}

}  // namespace
}  // namespace sluice
