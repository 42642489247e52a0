#include "parallel/mpi_group.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/mutex.h"
#include "tensor/buffer.h"

namespace sluice {
namespace {

// MPI counts bytes in an int, so larger arrays are sent in pieces.
constexpr int64_t kPieceBytes = int64_t{1} << 30;
// Minimum number of bytes per thread: copying fewer takes less time than waking another thread.
constexpr int64_t kUnpackGrain = int64_t{256} << 10;
// A waiting rank first tests this many times without a pause, which is long enough for most waits
// within a step. Then it yields between tests. Between steps, once it has waited for kTimeAwake, it
// sleeps for 1/8 of the time waited so far, at most kLongestPause.
constexpr int kTestsWithoutPause = 64;
constexpr std::chrono::milliseconds kTimeAwake(3);
constexpr std::chrono::milliseconds kLongestPause(1);

// State shared by all communicators of a process.
class MpiState {
 public:
  MpiState(const SluiceMpiTable& table, const MpiGroupOptions& options)
      : mpi(table), clock(*options.clock), deadline(options.deadline) {}

  const SluiceMpiTable& mpi;
  WireClock& clock;
  std::chrono::milliseconds deadline;

  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  std::string reason() const {
    const MutexLock lock(mutex_);
    return reason_;
  }
  void Fail(const std::string& reason) {
    std::function<void(const std::string&)> listener;
    {
      const MutexLock lock(mutex_);
      if (has_failed_.load()) return;
      reason_ = reason;
      has_failed_.store(true);
      listener = listener_;
    }
    if (listener) listener(reason);
  }
  void Listen(std::function<void(const std::string&)> listener) {
    const MutexLock lock(mutex_);
    listener_ = std::move(listener);
  }

 private:
  mutable Mutex mutex_;
  std::string reason_ GUARDED_BY(mutex_);
  std::function<void(const std::string&)> listener_ GUARDED_BY(mutex_);
  std::atomic<bool> has_failed_{false};
};

class MpiCommunicator final : public Communicator {
 public:
  // Consists of ranks [first, first + size) of all ranks.
  MpiCommunicator(std::shared_ptr<MpiState> state, int rank, int size, int first, int tag)
      : Communicator(rank, size), state_(std::move(state)), first_(first), tag_(tag) {
    pending_.reserve(static_cast<size_t>(size) * 4);
    posted_.reserve(static_cast<size_t>(size) * 4);
    num_posted_.resize(static_cast<size_t>(size));
  }

  void Gather(ThreadPool& pool, std::span<const int64_t> widths, int64_t rows, const void* mine,
              void* all, std::optional<int> root) override {
    CHECK_EQ(static_cast<int>(widths.size()), size());
    ThrowIfFailed();
    const int64_t width = std::accumulate(widths.begin(), widths.end(), int64_t{0});
    const int64_t own_bytes = widths[static_cast<size_t>(rank())] * rows;
    const bool receives = !root || *root == rank();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank() && (!root || *root == peer)) BeginSend(mine, own_bytes, peer);
    }
    if (!receives) return WaitForAll("a gather", Patience::kStep);
    // With a single row, the parts arrive directly in their final places.
    std::byte* const target = rows == 1 ? static_cast<std::byte*>(all) : Staging(width * rows);
    int64_t first = 0;
    for (int peer = 0; peer < size(); ++peer) {
      const int64_t bytes = widths[static_cast<size_t>(peer)] * rows;
      if (peer != rank()) BeginReceive(target + first * rows, bytes, peer);
      first += widths[static_cast<size_t>(peer)];
    }
    WaitForAll("a gather", Patience::kStep);
    const int64_t grain = std::max<int64_t>(1, kUnpackGrain / std::max<int64_t>(1, width));
    pool.ParallelFor(rows, grain, [&](int64_t begin, int64_t end) {
      int64_t column = 0;
      for (int peer = 0; peer < size(); ++peer) {
        const int64_t part = widths[static_cast<size_t>(peer)];
        const std::byte* const from =
            peer == rank() ? static_cast<const std::byte*>(mine) : target + column * rows;
        auto* const to = static_cast<std::byte*>(all) + column;
        for (int64_t row = begin; row < end && (rows > 1 || peer == rank()) && part > 0; ++row)
          std::memcpy(to + row * width, from + row * part, static_cast<size_t>(part));
        column += part;
      }
    });
  }

  void Broadcast(void* data, int64_t bytes, int root, Patience patience) override {
    ThrowIfFailed();
    if (rank() == root) {
      for (int peer = 0; peer < size(); ++peer) {
        if (peer != root) BeginSend(data, bytes, peer);
      }
      return WaitForAll("a broadcast", Patience::kStep);
    }
    BeginReceive(data, bytes, root);
    WaitForAll("a broadcast", patience);
  }

  void Post(const void* data, int64_t bytes, int to) override {
    ThrowIfFailed();
    ++num_posted_[static_cast<size_t>(to)];
    BeginSend(data, bytes, to, posted_);
  }

  void AwaitPosted(int to, int64_t most) override {
    ThrowIfFailed();
    const int64_t last = num_posted_[static_cast<size_t>(to)] - most;
    const auto is_awaited = [&](const Pending& sent) {
      return sent.peer == to && sent.message <= last;
    };
    WaitUntil("a receive", Patience::kStep, posted_,
              [&] { return std::none_of(posted_.begin(), posted_.end(), is_awaited); });
  }

  void Receive(void* data, int64_t bytes, int from, Patience patience) override {
    ThrowIfFailed();
    BeginReceive(data, bytes, from);
    WaitForAll("a send", patience);
  }

  void Progress() override {
    if (!posted_.empty()) Test(posted_);
  }

  std::unique_ptr<Communicator> Split(int first, int count) override {
    CHECK(first >= 0 && count >= 1 && first <= rank() && rank() < first + count &&
              first + count <= size(),
          "ranks [{}, {}) of {} by rank {}", first, first + count, size(), rank());
    // Each range of ranks has its own tag, so that messages of two groups never match.
    const int split_first = first_ + first;
    const int tag = 1 + split_first * kMostRanks + count;
    return std::make_unique<MpiCommunicator>(state_, rank() - first, count, split_first, tag);
  }

  void Fail(const std::string& reason) override {
    state_->Fail(fmt::format("rank {}: {}", first_ + rank(), reason));
  }

  std::string failure() const override { return state_->has_failed() ? state_->reason() : ""; }

  static constexpr int kMostRanks = 128;

 private:
  struct Pending {
    int request = 0;
    int peer = 0;
    int64_t bytes = -1;   // number of bytes that a receive expects; -1: this is a send
    int64_t message = 0;  // number of this message among those posted to the peer, from 1
  };

  void ThrowIfFailed() const {
    if (state_->has_failed()) throw GroupError(state_->reason());
  }

  [[noreturn]] void FailAndThrow(const std::string& reason) const {
    state_->Fail(reason);
    throw GroupError(state_->reason());
  }

  void CheckMpi(int code, int peer) const {
    if (code == 0) return;
    FailAndThrow(fmt::format("rank {}: MPI cannot reach rank {}: {}", first_ + rank(),
                             first_ + peer, state_->mpi.error_text(code)));
  }

  void BeginSend(const void* data, int64_t bytes, int peer) {
    BeginSend(data, bytes, peer, pending_);
  }
  void BeginSend(const void* data, int64_t bytes, int peer, std::vector<Pending>& transfers) {
    CHECK(peer >= 0 && peer < size() && peer != rank(), "a message to rank {} of {}", peer, size());
    const auto* from = static_cast<const std::byte*>(data);
    for (int64_t sent = 0; sent < bytes;) {
      const int64_t piece = std::min(bytes - sent, kPieceBytes);
      Pending& added = transfers.emplace_back();
      added.peer = peer;
      added.message = num_posted_[static_cast<size_t>(peer)];
      CheckMpi(state_->mpi.send(from + sent, piece, first_ + peer, tag_, &added.request), peer);
      sent += piece;
    }
  }

  void BeginReceive(void* data, int64_t bytes, int peer) {
    CHECK(peer >= 0 && peer < size() && peer != rank(), "a message of rank {} of {}", peer, size());
    auto* const to = static_cast<std::byte*>(data);
    for (int64_t received = 0; received < bytes;) {
      const int64_t piece = std::min(bytes - received, kPieceBytes);
      Pending& added = pending_.emplace_back();
      added.peer = peer;
      added.bytes = piece;
      CheckMpi(state_->mpi.receive(to + received, piece, first_ + peer, tag_, &added.request),
               peer);
      received += piece;
    }
  }

  // Removes completed transfers.
  void Test(std::vector<Pending>& transfers) {
    std::erase_if(transfers, [this](const Pending& transfer) {
      int is_done = 0;
      int64_t bytes = 0;
      CheckMpi(state_->mpi.test(transfer.request, &is_done, &bytes), transfer.peer);
      if (is_done != 0 && transfer.bytes >= 0 && bytes != transfer.bytes) {
        FailAndThrow(fmt::format("rank {}: expected {} bytes of rank {}, which sent {}",
                                 first_ + rank(), transfer.bytes, first_ + transfer.peer, bytes));
      }
      return is_done != 0;
    });
  }

  void WaitForAll(std::string_view what, Patience patience) {
    WaitUntil(what, patience, pending_, [this] { return pending_.empty(); });
  }

  // Waits until `is_done`, which depends on `transfers`. After a failure, transfers may stay
  // incomplete, because MPI is not called again.
  template <typename IsDone>
  void WaitUntil(std::string_view what, Patience patience, const std::vector<Pending>& transfers,
                 const IsDone& is_done) {
    const WireClock::Duration start = state_->clock.Now();
    for (int tests = 0;; ++tests) {
      if (!pending_.empty()) Test(pending_);
      Progress();
      if (is_done()) return;
      ThrowIfFailed();
      if (tests < kTestsWithoutPause) continue;
      const WireClock::Duration waited = state_->clock.Now() - start;
      if (patience == Patience::kStep && waited > state_->deadline) {
        FailAndThrow(fmt::format("rank {} did not reach {} within {} s, where rank {} waits",
                                 fmt::join(RanksOf(transfers), ", "), what,
                                 std::chrono::duration<double>(state_->deadline).count(),
                                 first_ + rank()));
      }
      const bool is_awake = waited < kTimeAwake || patience == Patience::kStep;
      state_->clock.Pause(is_awake ? WireClock::Duration::zero()
                                   : std::min<WireClock::Duration>(waited / 8, kLongestPause));
    }
  }

  std::vector<int> RanksOf(const std::vector<Pending>& transfers) const {
    std::vector<int> missing;
    missing.reserve(transfers.size());
    for (const Pending& transfer : transfers) missing.push_back(first_ + transfer.peer);
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    return missing;
  }

  std::byte* Staging(int64_t bytes) {
    if (static_cast<int64_t>(staging_.size_bytes()) < bytes) {
      auto larger = Buffer::Allocate(static_cast<size_t>(bytes), "what ranks gather");
      if (!larger)
        FailAndThrow(fmt::format("rank {}: {}", first_ + rank(), larger.error().message));
      staging_ = *std::move(larger);
    }
    return staging_.data();
  }

  const std::shared_ptr<MpiState> state_;
  const int first_;
  const int tag_;
  std::vector<Pending> pending_;  // transfers of the current operation
  std::vector<Pending> posted_;
  std::vector<int64_t> num_posted_;  // by peer
  Buffer staging_;                   // grows to the largest gather of a step
};

class MpiGroupOfProcesses final : public MpiGroup {
 public:
  MpiGroupOfProcesses(std::shared_ptr<MpiState> state, int rank, int size)
      : state_(std::move(state)), all_(state_, rank, size, 0, 0) {}

  Communicator& all() override { return all_; }
  std::string library() const override {
    const std::string_view text = state_->mpi.library_version();
    return std::string(text.substr(0, text.find_first_of(",\n")));
  }
  void SetDeadline(std::chrono::milliseconds deadline) override { state_->deadline = deadline; }
  void FailAs(const std::string& reason) override { state_->Fail(reason); }
  void OnFailure(std::function<void(const std::string&)> listener) override {
    state_->Listen(std::move(listener));
  }
  void Leave() override {
    if (!state_->has_failed()) state_->mpi.finalize();
  }

 private:
  const std::shared_ptr<MpiState> state_;
  MpiCommunicator all_;
};

}  // namespace

Result<std::unique_ptr<MpiGroup>> MpiGroup::Join(const SluiceMpiTable& mpi,
                                                 const MpiGroupOptions& options) {
  int rank = 0, size = 0;
  if (const int code = mpi.init(&rank, &size); code != 0) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("MPI does not start: {}", mpi.error_text(code)));
  }
  if (size > MpiCommunicator::kMostRanks) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("expected at most {} processes, found {}: start fewer",
                            MpiCommunicator::kMostRanks, size));
  }
  return std::make_unique<MpiGroupOfProcesses>(std::make_shared<MpiState>(mpi, options), rank,
                                               size);
}

}  // namespace sluice
