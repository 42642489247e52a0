// The communicator over MPI, tested with a fake MPI whose ranks are threads.
#include "parallel/mpi_group.h"

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mutex.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

// Messages between threads; as in MPI, in order per (sender, receiver, tag).
struct FakeMpi {
  struct Receive {
    std::byte* data;
    int64_t bytes;
    std::tuple<int, int, int> channel;
  };
  Mutex mutex;
  int size GUARDED_BY(mutex) = 0;
  std::map<std::tuple<int, int, int>, std::deque<std::vector<std::byte>>> sent GUARDED_BY(mutex);
  std::map<int, Receive> receives GUARDED_BY(mutex);
  int next GUARDED_BY(mutex) = 0;
};
FakeMpi* g_fake = nullptr;
thread_local int t_rank = 0;

int FakeInit(int* rank, int* size) {
  const MutexLock lock(g_fake->mutex);
  *rank = t_rank;
  *size = g_fake->size;
  return 0;
}
int FakeSend(const void* data, int64_t bytes, int peer, int tag, int* request) {
  const MutexLock lock(g_fake->mutex);
  const auto* begin = static_cast<const std::byte*>(data);
  g_fake->sent[{t_rank, peer, tag}].emplace_back(begin, begin + bytes);
  *request = -1;
  return 0;
}
int FakeReceive(void* data, int64_t bytes, int peer, int tag, int* request) {
  const MutexLock lock(g_fake->mutex);
  *request = g_fake->next++;
  g_fake->receives[*request] = {static_cast<std::byte*>(data), bytes, {peer, t_rank, tag}};
  return 0;
}
int FakeTest(int request, int* is_done, int64_t* bytes) {
  *is_done = 1;
  if (request < 0) return 0;
  const MutexLock lock(g_fake->mutex);
  const FakeMpi::Receive receive = g_fake->receives.at(request);
  auto& queue = g_fake->sent[receive.channel];
  *is_done = queue.empty() ? 0 : 1;
  if (queue.empty()) return 0;
  *bytes = static_cast<int64_t>(queue.front().size());
  if (*bytes > receive.bytes) return 15;
  if (*bytes > 0) std::memcpy(receive.data, queue.front().data(), queue.front().size());
  queue.pop_front();
  g_fake->receives.erase(request);
  return 0;
}

constexpr SluiceMpiTable kFakeTable = {SLUICE_MPI_ABI,   [] { return "Fake MPI v1, nowhere"; },
                                       FakeInit,         FakeSend,
                                       FakeReceive,      FakeTest,
                                       [] { return 0; }, [](int) { return "message truncated"; }};

// Runs body(group) on each of `size` ranks. Returns each rank's exception message.
template <typename Body>
std::vector<std::string> OnRanks(int size, Body body, MpiGroupOptions options = {}) {
  FakeMpi fake;
  {
    const MutexLock lock(fake.mutex);
    fake.size = size;
  }
  g_fake = &fake;
  std::vector<std::string> thrown(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      t_rank = rank;
      auto group = MpiGroup::Join(kFakeTable, options);
      ASSERT_TRUE(group);
      try {
        body(**group);
      } catch (const GroupError& error) {
        thrown[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

TEST(MpiGroupTest, ColumnsAreGatheredInTheOrderOfTheRanks) {
  for (const int64_t rows : {1, 5}) {
    for (const std::optional<int> root : {std::optional<int>(), std::optional<int>(1)}) {
      OnRanks(3, [&](MpiGroup& group) {
        Communicator& all = group.all();
        EXPECT_EQ(group.library(), "Fake MPI v1");
        ThreadPool pool(2);
        const std::vector<int64_t> widths{3, 0, 4};
        std::vector<char> mine;
        for (int64_t row = 0; row < rows; ++row)
          mine.insert(mine.end(), static_cast<size_t>(widths[static_cast<size_t>(all.rank())]),
                      static_cast<char>('a' + all.rank() + row));
        std::vector<char> gathered(static_cast<size_t>(7 * rows), '.');
        all.Gather(pool, widths, rows, mine.data(), gathered.data(), root);
        std::string expected;
        for (int64_t row = 0; row < rows; ++row) {
          expected += std::string(3, static_cast<char>('a' + row));
          expected += std::string(4, static_cast<char>('c' + row));
        }
        if (root && *root != all.rank()) expected.assign(expected.size(), '.');
        EXPECT_EQ(std::string(gathered.begin(), gathered.end()), expected);
      });
    }
  }
}

TEST(MpiGroupTest, PartsOfAGroupSpeakByThemselves) {
  OnRanks(4, [](MpiGroup& group) {
    Communicator& all = group.all();
    const auto part = all.Split(all.rank() / 2 * 2, 2);
    EXPECT_EQ(part->rank(), all.rank() % 2);
    int number = part->rank() == 0 ? all.rank() : -1;
    part->Broadcast(&number, sizeof(number), 0, Patience::kStep);
    EXPECT_EQ(number, all.rank() / 2 * 2);
    if (all.rank() == 1) all.Send(&number, sizeof(number), 2);
    if (all.rank() == 2) {
      all.Receive(&number, sizeof(number), 1);
      EXPECT_EQ(number, 0);
    }
  });
}

TEST(MpiGroupTest, PostedMessagesComeInTheirOrder) {
  OnRanks(2, [](MpiGroup& group) {
    Communicator& all = group.all();
    std::array<int, 20> values{};
    if (all.rank() == 0) {
      std::iota(values.begin(), values.end(), 0);
      for (const int& value : values) all.Post(&value, sizeof(value), 1);
      all.AwaitPosted(1, 5);
      all.Progress();
      all.AwaitPosted(1, 0);
    } else {
      for (int& value : values) all.Receive(&value, sizeof(value), 0, Patience::kIdle);
      for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<int>(i));
    }
  });
}

TEST(MpiGroupTest, ARankThatDoesNotComeIsNamedWhenTheDeadlineIsOver) {
  const auto thrown = OnRanks(3,
                              [](MpiGroup& group) {
                                if (group.all().rank() == 2) return;
                                ThreadPool pool(1);
                                const std::vector<int64_t> widths{1, 1, 1};
                                char mine = 0;
                                std::array<char, 3> gathered{};
                                group.all().Gather(pool, widths, 1, &mine, gathered.data());
                              },
                              {.deadline = 50ms});
  EXPECT_THAT(thrown[0], HasSubstr("rank 2 did not reach a gather within 0.05 s, where rank 0"));
  EXPECT_THAT(thrown[1], HasSubstr("rank 2 did not reach a gather within 0.05 s, where rank 1"));
}

TEST(MpiGroupTest, AWaitEndsWhenAnotherThreadFailsTheGroup) {
  const auto thrown = OnRanks(2, [](MpiGroup& group) {
    std::string told;
    group.OnFailure([&told](const std::string& reason) { told = reason; });
    std::thread other([&group] { group.FailAs("rank 1 (process 7) has ended"); });
    int number = 0;
    const auto end = std::unique_ptr<std::thread, void (*)(std::thread*)>(
        &other, [](std::thread* thread) { thread->join(); });
    EXPECT_THROW(
        group.all().Broadcast(&number, sizeof(number), 1 - group.all().rank(), Patience::kIdle),
        GroupError);
    EXPECT_EQ(group.all().failure(), "rank 1 (process 7) has ended");
    group.all().Fail("too late");
    EXPECT_EQ(told, "rank 1 (process 7) has ended");
    group.all().Send(&number, sizeof(number), 1 - group.all().rank());
  });
  EXPECT_THAT(thrown, ::testing::Each("rank 1 (process 7) has ended"));
}

TEST(MpiGroupTest, SizesThatDoNotMatchFailTheGroup) {
  const auto thrown = OnRanks(2,
                              [](MpiGroup& group) {
                                std::array<char, 8> data{};
                                group.all().Broadcast(data.data(), group.all().rank() == 0 ? 4 : 8,
                                                      0, Patience::kStep);
                              },
                              {.deadline = 10s});
  EXPECT_THAT(thrown[1], HasSubstr("rank 1: expected 8 bytes of rank 0, which sent 4"));
}

}  // namespace
}  // namespace sluice
