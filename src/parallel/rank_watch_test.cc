#include "parallel/rank_watch.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mutex.h"
#include "parallel/local_group.h"
#include "parallel/socket_parts.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

// A rank's watch, with the reports that it made.
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

// Calls `before` before every broadcast.
class HaltedCommunicator final : public Communicator {
 public:
  HaltedCommunicator(Communicator& inner, std::function<void()> before)
      : Communicator(inner.rank(), inner.size()), inner_(inner), before_(std::move(before)) {}

  void Gather(ThreadPool& pool, std::span<const int64_t> widths, int64_t rows, const void* mine,
              void* all, std::optional<int> root) override {
    inner_.Gather(pool, widths, rows, mine, all, root);
  }
  void Broadcast(void* data, int64_t bytes, int root, Patience patience) override {
    before_();
    inner_.Broadcast(data, bytes, root, patience);
  }
  void Post(const void* data, int64_t bytes, int to) override { inner_.Post(data, bytes, to); }
  void AwaitPosted(int to, int64_t most) override { inner_.AwaitPosted(to, most); }
  void Receive(void* data, int64_t bytes, int from, Patience patience) override {
    inner_.Receive(data, bytes, from, patience);
  }
  std::unique_ptr<Communicator> Split(int first, int count) override {
    return inner_.Split(first, count);
  }
  void Fail(const std::string& reason) override { inner_.Fail(reason); }
  std::string failure() const override { return inner_.failure(); }

 private:
  Communicator& inner_;
  const std::function<void()> before_;
};

// Returns the sockets at which this process listens, in the format of /proc/net/tcp:
// "0100007F:1F90", address and port.
std::set<std::string> ListeningSockets() {
  std::set<std::string> own;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    own.insert(std::filesystem::read_symlink(entry.path(), failed).string());
  std::set<std::string> found;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state, skipped, inode;
    words >> number >> local >> remote >> state;
    for (int i = 0; i < 5; ++i) words >> skipped;
    words >> inode;
    if (state == "0A" && own.contains("socket:[" + inode + "]")) found.insert(local);
  }
  return found;
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
  EXPECT_THAT(reason, HasSubstr("has ended without a message"));
  ranks[0]->watch->Announce(reason);
  EXPECT_EQ(Within(ranks[1]->loss), reason);
  // The other ranks stay until rank 0 has ended.
  ranks[1]->watch->Announce(reason);
  auto end = ranks[1]->end.get_future();
  EXPECT_EQ(end.wait_for(50ms), std::future_status::timeout);
  ranks[0]->watch.reset();
  EXPECT_EQ(end.wait_for(20s), std::future_status::ready);
}

TEST(RankWatchTest, StrangersThatSayNothingDelayNobody) {
  auto group = MakeLocalGroup({.size = 2, .spin = false});
  const std::set<std::string> before = ListeningSockets();
  std::vector<OwnedFd> strangers;
  const auto connect_strangers = [&] {
    std::string local;
    while (local.empty()) {
      for (const std::string& found : ListeningSockets()) {
        if (!before.contains(found)) local = found;
      }
    }
    EXPECT_THAT(local, ::testing::StartsWith("0100007F:")) << "not at the loopback alone";
    uint16_t port = 0;
    std::from_chars(local.data() + 9, local.data() + local.size(), port, 16);
    for (int i = 0; i < 20; ++i) {
      auto stranger = ConnectBy("127.0.0.1", port, std::chrono::steady_clock::now() + 20s);
      ASSERT_TRUE(stranger);
      strangers.push_back(*std::move(stranger));
    }
  };
  HaltedCommunicator second(*group[1], connect_strangers);
  RankWatchOptions options;
  options.on_loss = [](const std::string&) {};
  std::unique_ptr<RankWatch> first_watch;
  std::thread first([&] {
    auto watch = RankWatch::Start(*group[0], options);
    ASSERT_TRUE(watch) << watch.error().message;
    first_watch = *std::move(watch);
  });
  const auto start = std::chrono::steady_clock::now();
  auto second_watch = RankWatch::Start(second, options);
  first.join();
  EXPECT_TRUE(second_watch) << second_watch.error().message;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1500ms);
  for (RankWatch* watch : {first_watch.get(), second_watch->get()}) {
    if (watch != nullptr) watch->SayGoodbye();
  }
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
