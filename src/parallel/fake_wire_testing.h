// For tests: a simulated network of ranks for the communicator of processes (mpi_group.h): delays,
// stalled ranks, dead ranks and network partitions, in simulated time.
//
// Ranks are threads, of which one runs at a time, until it pauses; a rank also pauses to wait. Then
// the rank whose pause ends first runs, and the simulated time becomes the end of that pause. The
// seed determines all choices. A watch like that of processes (rank_watch.h) reports a failure to
// the other ranks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "parallel/mpi/mpi_table.h"
#include "parallel/wire_clock.h"

namespace sluice::testing {

struct WireFaults {
  enum class Kind { kNone, kStall, kDeath, kCut };
  Kind kind = Kind::kNone;
  // The rank that stalls or dies; for kCut: the first rank of the second side.
  int rank = 0;
  int64_t operation = 0;  // index of the rank's operation before which the fault occurs
  WireClock::Duration stall{0};
  // Whether the watch detects that a rank has died; if not, only a deadline shows it.
  bool is_watched = true;
};

// Thrown to end the thread of a dying rank; no code in between catches it.
struct RankDied {};

class FakeWire final : public WireClock {
 public:
  FakeWire(int size, uint64_t seed, Duration most_delay, const WireFaults& faults)
      : random_(seed),
        most_delay_(most_delay),
        faults_(faults),
        ranks_(static_cast<size_t>(size)) {}

  // Called first, by the rank's own thread; returns when it is the rank's turn. Rank 0 runs first.
  void Enter(int rank) {
    std::unique_lock lock(mutex_);
    Here() = {this, rank};
    ++num_entered_;
    changed_.notify_all();
    changed_.wait(
        lock, [&] { return num_entered_ == static_cast<int>(ranks_.size()) && current_ == rank; });
  }
  // The calling rank takes no further part.
  void Leave() {
    const std::unique_lock lock(mutex_);
    Mine().has_left = true;
    if (AnyLeft()) PassOn();
    Here() = {};
  }
  // Called with the reason when the watch reports a failure, by the rank's own thread inside a call
  // to the wire.
  void OnTold(std::function<void(const std::string&)> listener) {
    const std::unique_lock lock(mutex_);
    Mine().told = std::move(listener);
  }
  // Called by a rank whose group has failed: the watch reports it to the others.
  void Tell(const std::string& reason) {
    const std::unique_lock lock(mutex_);
    Spread(reason, kNotice);
  }
  bool has_struck() {
    const std::unique_lock lock(mutex_);
    return has_struck_;
  }

  Duration Now() override {
    const std::unique_lock lock(mutex_);
    return now_;
  }
  void Pause(Duration pause) override {
    std::unique_lock lock(mutex_);
    Wait(lock, std::max<Duration>(pause, kTurn));
  }

  static const SluiceMpiTable& Table() {
    static constexpr SluiceMpiTable kTable = {
        SLUICE_MPI_ABI,
        [] { return "simulated"; },
        [](int* rank, int* size) {
          *rank = Here().rank;
          *size = static_cast<int>(Here().wire->ranks_.size());
          return 0;
        },
        [](const void* data, int64_t bytes, int peer, int tag, int* request) {
          *request = -1;
          return Here().wire->Send(data, bytes, peer, tag);
        },
        [](void* data, int64_t bytes, int peer, int tag, int* request) {
          return Here().wire->Receive(data, bytes, peer, tag, request);
        },
        [](int request, int* is_done, int64_t* bytes) {
          return Here().wire->Test(request, is_done, bytes);
        },
        [] { return 0; },
        [](int) { return "message truncated"; }};
    return kTable;
  }

 private:
  // Minimum pause of a rank that polls.
  static constexpr Duration kTurn = std::chrono::milliseconds(5);
  // Time until the watch has reported a failure.
  static constexpr Duration kNotice = std::chrono::milliseconds(5);
  // Silence after which the watch reports a rank as lost.
  static constexpr Duration kSilence = std::chrono::seconds(3);
  static constexpr Duration kEnd = std::chrono::hours(1);  // longer than any test

  struct Rank {
    Duration wakes_at{0};
    bool has_left = false;
    int64_t operations = 0;
    std::function<void(const std::string&)> told;
    Duration notice_at = Duration::max();
    std::string notice;
  };
  struct Message {
    Duration arrives_at;
    std::vector<std::byte> bytes;
  };
  using Channel = std::tuple<int, int, int>;  // sender, receiver and tag
  struct Wanted {
    std::byte* data;
    int64_t bytes;
    Channel channel;
  };
  struct Place {
    FakeWire* wire = nullptr;
    int rank = 0;
  };
  static Place& Here() {
    thread_local Place place;
    return place;
  }

  Rank& Mine() { return ranks_[static_cast<size_t>(Here().rank)]; }
  bool IsBehindCut(int rank) const { return rank >= faults_.rank; }
  bool AnyLeft() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.has_left; });
  }

  // Lets the rank run whose pause ends first. If there are several such ranks, chooses one at
  // random.
  void PassOn() {
    Duration first = Duration::max();
    for (const Rank& rank : ranks_) {
      if (!rank.has_left) first = std::min(first, rank.wakes_at);
    }
    std::vector<int> next;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (!ranks_[i].has_left && ranks_[i].wakes_at == first) next.push_back(static_cast<int>(i));
    }
    current_ = next[random_() % next.size()];
    now_ = std::max(now_, first);
    CHECK(now_ < kEnd, "ranks wait for ever");
    changed_.notify_all();
  }
  void Wait(std::unique_lock<std::mutex>& lock, Duration pause) {
    const int rank = Here().rank;
    Mine().wakes_at = now_ + pause;
    PassOn();
    changed_.wait(lock, [&] { return current_ == rank; });
    Hear(lock);
  }
  // Delivers the watch's notice if it is due.
  void Hear(std::unique_lock<std::mutex>& lock) {
    Rank& mine = Mine();
    if (now_ < mine.notice_at || !mine.told) return;
    mine.notice_at = Duration::max();
    const std::string notice = mine.notice;
    lock.unlock();
    mine.told(notice);
    lock.lock();
  }
  void NotifyAt(Rank& rank, Duration at, const std::string& reason) {
    if (at >= rank.notice_at) return;
    rank.notice_at = at;
    rank.notice = reason;
  }
  void Spread(const std::string& reason, Duration after) {
    const bool is_cut = has_struck_ && faults_.kind == WireFaults::Kind::kCut;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (is_cut && IsBehindCut(static_cast<int>(i)) != IsBehindCut(Here().rank)) continue;
      NotifyAt(ranks_[i], now_ + after, reason);
    }
  }

  // Applies a fault that is due. Called before each operation of the calling rank.
  void Strike(std::unique_lock<std::mutex>& lock) {
    Hear(lock);
    const int64_t operation = Mine().operations++;
    if (has_struck_ || Here().rank != faults_.rank || operation < faults_.operation) return;
    switch (faults_.kind) {
      case WireFaults::Kind::kNone: return;
      case WireFaults::Kind::kStall: has_struck_ = true; return Wait(lock, faults_.stall);
      case WireFaults::Kind::kDeath:
        has_struck_ = true;
        if (faults_.is_watched)
          Spread(fmt::format("rank {} has ended without a message", faults_.rank), kNotice);
        throw RankDied();
      case WireFaults::Kind::kCut:
        has_struck_ = true;
        for (size_t i = 0; i < ranks_.size(); ++i) {
          const bool is_behind = IsBehindCut(static_cast<int>(i));
          NotifyAt(ranks_[i], now_ + kSilence,
                   fmt::format("rank {} gives no sign of life", is_behind ? 0 : faults_.rank));
        }
    }
  }

  int Send(const void* data, int64_t bytes, int peer, int tag) {
    std::unique_lock lock(mutex_);
    Strike(lock);
    const int rank = Here().rank;
    const bool is_cut = has_struck_ && faults_.kind == WireFaults::Kind::kCut;
    if (is_cut && IsBehindCut(rank) != IsBehindCut(peer)) return 0;
    auto& channel = sent_[{rank, peer, tag}];
    const auto most = static_cast<uint64_t>(most_delay_.count()) + 1;
    Duration arrives_at = now_ + Duration(static_cast<int64_t>(random_() % most));
    if (!channel.empty()) arrives_at = std::max(arrives_at, channel.back().arrives_at);
    const auto* begin = static_cast<const std::byte*>(data);
    channel.push_back({arrives_at, {begin, begin + bytes}});
    return 0;
  }
  int Receive(void* data, int64_t bytes, int peer, int tag, int* request) {
    std::unique_lock lock(mutex_);
    Strike(lock);
    *request = next_request_++;
    wanted_[*request] = {static_cast<std::byte*>(data), bytes, {peer, Here().rank, tag}};
    return 0;
  }
  int Test(int request, int* is_done, int64_t* bytes) {
    std::unique_lock lock(mutex_);
    Hear(lock);
    *is_done = 1;
    if (request < 0) return 0;
    const Wanted wanted = wanted_.at(request);
    std::deque<Message>& channel = sent_[wanted.channel];
    *is_done = !channel.empty() && channel.front().arrives_at <= now_ ? 1 : 0;
    if (*is_done == 0) return 0;
    const std::vector<std::byte>& message = channel.front().bytes;
    *bytes = static_cast<int64_t>(message.size());
    if (*bytes > wanted.bytes) return 15;
    if (*bytes > 0) std::memcpy(wanted.data, message.data(), message.size());
    channel.pop_front();
    wanted_.erase(request);
    return 0;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  const Duration most_delay_;
  const WireFaults faults_;
  std::vector<Rank> ranks_;
  int num_entered_ = 0;
  int current_ = 0;
  Duration now_{0};
  bool has_struck_ = false;
  std::map<Channel, std::deque<Message>> sent_;
  std::map<int, Wanted> wanted_;
  int next_request_ = 0;
};

}  // namespace sluice::testing
