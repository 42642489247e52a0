#include "parallel/local_group.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <new>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/mutex.h"
#include "parallel/wait_word.h"

namespace sluice {
namespace {

using Clock = WaitWord::Clock;

// Minimum number of bytes per thread: copying fewer takes less time than waking another thread.
constexpr int64_t kCopyGrain = int64_t{256} << 10;

// The reason why the group, and all groups split from it, have failed.
class Failure {
 public:
  // Returns false if the group had already failed.
  bool Set(const std::string& reason) {
    const MutexLock lock(mutex_);
    if (failed_.load()) return false;
    try {
      reason_ = reason;
    } catch (const std::bad_alloc&) {
      reason_ = "out of memory";  // so short that it needs none
    }
    failed_.store(true);
    return true;
  }
  bool IsSet() const { return failed_.load(std::memory_order_acquire); }
  std::string Reason() const {
    const MutexLock lock(mutex_);
    return reason_;
  }

 private:
  mutable Mutex mutex_;
  std::string reason_ GUARDED_BY(mutex_);
  std::atomic<bool> failed_{false};
};

// The data that a rank exposes to the others during a collective operation. Written by its own
// thread before it arrives, read by the others after all have arrived.
struct alignas(64) Shown {
  const void* data = nullptr;
  int64_t bytes = 0;
  std::atomic<uint32_t> arrivals{0};
};

// Messages from one rank to another, stored in the sender's memory.
struct Channel {
  static constexpr uint32_t kMostPosted = 64;
  struct Message {
    const void* data = nullptr;
    int64_t bytes = 0;
  };
  std::array<Message, kMostPosted> messages;
  std::atomic<uint32_t> num_sent{0};   // written by the sender
  std::atomic<uint32_t> num_taken{0};  // written by the receiver
  // These members advance together with the counters, and when the group fails.
  WaitWord sent;
  WaitWord taken;

  // Returns the number of messages that were sent but not received.
  uint32_t count() const {
    return num_sent.load(std::memory_order_acquire) - num_taken.load(std::memory_order_acquire);
  }
};

struct Shared {
  Shared(const LocalGroupOptions& group_options, int first_rank, std::shared_ptr<Failure> why)
      : options(group_options),
        first(first_rank),
        failure(std::move(why)),
        shown(static_cast<size_t>(group_options.size)),
        channels(static_cast<size_t>(group_options.size) *
                 static_cast<size_t>(group_options.size)) {}

  const LocalGroupOptions options;
  // Number of rank 0 in the root group. Error messages use the root group's numbers.
  const int first;
  const std::shared_ptr<Failure> failure;
  std::vector<Shown> shown;
  std::atomic<int> num_arrived{0};
  WaitWord rounds;  // advances when all ranks have arrived, and when the group fails
  std::vector<Channel> channels;

  Mutex mutex;
  std::map<std::pair<int, int>, std::shared_ptr<Shared>> splits GUARDED_BY(mutex);

  // Wakes all waiting ranks so that they see the failure.
  void WakeAll() {
    rounds.Advance();
    for (Channel& channel : channels) {
      channel.sent.Advance();
      channel.taken.Advance();
    }
    const MutexLock lock(mutex);
    for (auto& [ranks, split] : splits) split->WakeAll();
  }
};

class LocalCommunicator final : public Communicator {
 public:
  // `root`: the group from which all others were split. A failure wakes all of its ranks.
  LocalCommunicator(int rank, std::shared_ptr<Shared> shared, std::shared_ptr<Shared> root)
      : Communicator(rank, shared->options.size),
        shared_(std::move(shared)),
        root_(std::move(root)) {}

  void Gather(ThreadPool& pool, std::span<const int64_t> widths, int64_t rows, const void* mine,
              void* all, std::optional<int> root) override {
    CHECK_EQ(static_cast<int>(widths.size()), size());
    const int64_t width = std::accumulate(widths.begin(), widths.end(), int64_t{0});
    Show(mine, widths[static_cast<size_t>(rank())] * rows);
    Arrive("a gather", Patience::kStep);
    if (!root || *root == rank()) {
      const int64_t grain = std::max<int64_t>(1, kCopyGrain / std::max<int64_t>(1, width));
      pool.ParallelFor(rows, grain, [&](int64_t begin, int64_t end) {
        int64_t first = 0;
        for (size_t from = 0; from < widths.size(); ++from) {
          CopyColumns(Peer(from, widths[from] * rows), widths[from], begin, end,
                      static_cast<std::byte*>(all) + first, width);
          first += widths[from];
        }
      });
    }
    // The exposed memory must not be written until all ranks have read it.
    Arrive("the end of a gather", Patience::kStep);
  }

  void Broadcast(void* data, int64_t bytes, int root, Patience patience) override {
    Show(data, bytes);
    Arrive("a broadcast", rank() == root ? Patience::kStep : patience);
    if (rank() != root && bytes > 0)
      std::memcpy(data, Peer(static_cast<size_t>(root), bytes), static_cast<size_t>(bytes));
    Arrive("the end of a broadcast", Patience::kStep);
  }

  void Post(const void* data, int64_t bytes, int to) override {
    AwaitPosted(to, Channel::kMostPosted - 1);
    Channel& channel = ChannelOf(rank(), to);
    const uint32_t number = channel.num_sent.load(std::memory_order_relaxed);
    channel.messages[number % Channel::kMostPosted] = {data, bytes};
    channel.num_sent.store(number + 1, std::memory_order_release);
    channel.sent.Advance();
  }

  void AwaitPosted(int to, int64_t most) override {
    Channel& channel = ChannelOf(rank(), to);
    WaitUntil(channel.taken, to, "receive", Patience::kStep,
              [&] { return channel.count() <= most; });
  }

  void Receive(void* data, int64_t bytes, int from, Patience patience) override {
    Channel& channel = ChannelOf(from, rank());
    WaitUntil(channel.sent, from, "send", patience, [&] { return channel.count() > 0; });
    const uint32_t number = channel.num_taken.load(std::memory_order_relaxed);
    const Channel::Message message = channel.messages[number % Channel::kMostPosted];
    if (message.bytes != bytes) {
      FailAndThrow(fmt::format("rank {}: expected {} bytes of rank {}, which sent {}", Name(rank()),
                               bytes, Name(from), message.bytes));
    }
    if (bytes > 0) std::memcpy(data, message.data, static_cast<size_t>(bytes));
    channel.num_taken.store(number + 1, std::memory_order_release);
    channel.taken.Advance();
  }

  std::unique_ptr<Communicator> Split(int first, int count) override {
    CHECK(first >= 0 && count >= 1 && first <= rank() && rank() < first + count &&
              first + count <= size(),
          "ranks [{}, {}) of {} by rank {}", first, first + count, size(), rank());
    std::shared_ptr<Shared> split;
    {
      const MutexLock lock(shared_->mutex);
      std::shared_ptr<Shared>& entry = shared_->splits[{first, count}];
      if (entry == nullptr) {
        LocalGroupOptions options = shared_->options;
        options.size = count;
        entry = std::make_shared<Shared>(options, shared_->first + first, shared_->failure);
      }
      split = entry;
    }
    return std::make_unique<LocalCommunicator>(rank() - first, std::move(split), root_);
  }

  void Fail(const std::string& reason) override {
    if (shared_->failure->Set(fmt::format("rank {}: {}", Name(rank()), reason))) root_->WakeAll();
  }

  std::string failure() const override { return shared_->failure->Reason(); }

 private:
  static void CopyColumns(const std::byte* from, int64_t width, int64_t begin, int64_t end,
                          std::byte* to, int64_t stride) {
    if (width == 0) return;  // `from` or `to` may be null
    if (width == stride) {
      std::memcpy(to + begin * stride, from + begin * width,
                  static_cast<size_t>((end - begin) * width));
      return;
    }
    for (int64_t row = begin; row < end; ++row)
      std::memcpy(to + row * stride, from + row * width, static_cast<size_t>(width));
  }

  // Returns the rank's number in the root group.
  int Name(int rank) const { return shared_->first + rank; }

  void Show(const void* data, int64_t bytes) {
    Shown& shown = shared_->shown[static_cast<size_t>(rank())];
    shown.data = data;
    shown.bytes = bytes;
  }

  const std::byte* Peer(size_t rank, int64_t bytes) const {
    const Shown& shown = shared_->shown[rank];
    CHECK_EQ(shown.bytes, bytes);
    return static_cast<const std::byte*>(shown.data);
  }

  Channel& ChannelOf(int from, int to) {
    CHECK(from >= 0 && from < size() && to >= 0 && to < size() && from != to,
          "a message from rank {} to rank {} of {}", from, to, size());
    return shared_->channels[static_cast<size_t>(from) * static_cast<size_t>(size()) +
                             static_cast<size_t>(to)];
  }

  void ThrowIfFailed() const {
    if (shared_->failure->IsSet()) throw GroupError(shared_->failure->Reason());
  }

  [[noreturn]] void FailAndThrow(const std::string& reason) {
    if (shared_->failure->Set(reason)) root_->WakeAll();
    throw GroupError(shared_->failure->Reason());
  }

  std::optional<Clock::time_point> DeadlineOf(Patience patience) const {
    if (patience == Patience::kIdle) return {};
    return Clock::now() + shared_->options.deadline;
  }

  // Returns once every rank has arrived as many times as this rank.
  void Arrive(const char* what, Patience patience) {
    Shared& shared = *shared_;
    // Loads the word before checking for a failure, because a later failure advances it.
    const uint32_t round = shared.rounds.Load();
    ThrowIfFailed();
    std::atomic<uint32_t>& arrivals = shared.shown[static_cast<size_t>(rank())].arrivals;
    const uint32_t mine = arrivals.load(std::memory_order_relaxed) + 1;
    arrivals.store(mine, std::memory_order_relaxed);
    if (shared.num_arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
      shared.num_arrived.store(0, std::memory_order_relaxed);
      shared.rounds.Advance();
    } else if (!shared.rounds.WaitForChange(round, shared.options.spin, DeadlineOf(patience))) {
      FailAndThrow(fmt::format("rank {} did not reach {} within {} s, where rank {} waits",
                               fmt::join(MissingRanks(mine), ", "), what, DeadlineSeconds(),
                               Name(rank())));
    }
    ThrowIfFailed();
  }

  std::vector<int> MissingRanks(uint32_t arrivals) const {
    std::vector<int> missing;
    for (int other = 0; other < size(); ++other) {
      if (shared_->shown[static_cast<size_t>(other)].arrivals.load() != arrivals)
        missing.push_back(Name(other));
    }
    return missing;
  }

  double DeadlineSeconds() const {
    return std::chrono::duration<double>(shared_->options.deadline).count();
  }

  // REQUIRES: `word` advances whenever `is_done` may have become true.
  template <typename IsDone>
  void WaitUntil(WaitWord& word, int peer, const char* what, Patience patience,
                 const IsDone& is_done) {
    const auto deadline = DeadlineOf(patience);
    while (true) {
      const uint32_t seen = word.Load();
      ThrowIfFailed();
      if (is_done()) return;
      if (!word.WaitForChange(seen, shared_->options.spin, deadline)) {
        FailAndThrow(fmt::format("rank {} did not {} within {} s, where rank {} waits", Name(peer),
                                 what, DeadlineSeconds(), Name(rank())));
      }
    }
  }

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<Shared> root_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeLocalGroup(const LocalGroupOptions& options) {
  CHECK_GE(options.size, 1);
  const auto shared = std::make_shared<Shared>(options, 0, std::make_shared<Failure>());
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < options.size; ++rank)
    ranks.push_back(std::make_unique<LocalCommunicator>(rank, shared, shared));
  return ranks;
}

}  // namespace sluice
