// DeviceCommunicator over NCCL. The NCCL communicators are non-blocking: every call returns
// immediately, and operations in progress are polled until the deadline.
#include <algorithm>
#include <atomic>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/log.h"
#include "device/emulated_wait.h"
#include "parallel/device_communicator.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// For each rank, the number of steps whose work it has enqueued completely. Shared by the ranks,
// which are threads of one process.
struct SentWork {
  explicit SentWork(int size) : counts(static_cast<size_t>(size)) {}
  std::vector<std::atomic<int64_t>> counts;
};

class NcclGroup final : public DeviceCommunicator {
 public:
  NcclGroup(const nccl::Functions& nccl, Communicator& all,
            const DeviceCommunicatorOptions& options)
      : nccl_(nccl), all_(all), options_(options) {}

  ~NcclGroup() override {
    for (const nccl::Comm comm : {stage_comm_, all_comm_}) {
      if (comm == nullptr) continue;
      // No exchange is in progress here, so the state of the other ranks is irrelevant.
      static_cast<void>(nccl_.abort(comm));
    }
  }

  // Creates the communicators. Throws GroupError.
  void Connect(Communicator* stage, DeviceStream& stream) {
    ShareCounts();
    // Makes the stream's device the thread's current one, which NCCL uses.
    static_cast<void>(stream.handle());
    if (stage != nullptr) Join(*stage, stage_comm_);
    if (stage == nullptr || stage->size() < all_.size()) Join(all_, all_comm_);
    stage_ = stage;
    if (stage != nullptr) {
      stage_rank_ = stage->rank();
      stage_size_ = stage->size();
    }
  }

  void Gather(DeviceStream& stream, std::span<const int64_t> sizes, const void* mine, void* all,
              std::optional<int> root) override {
    CHECK_EQ(static_cast<int>(sizes.size()), stage_size_);
    ThrowIfFailed();  // After a failure there is no communicator.
    void* const native = stream.handle().native;
    const auto own = static_cast<size_t>(stage_rank_);
    const auto place = [&](size_t rank) {
      return static_cast<std::byte*>(all) +
             std::accumulate(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(rank),
                             int64_t{0});
    };
    if (root) {
      const bool is_root = *root == stage_rank_;
      Grouped(stage_comm_, [&] {
        if (!is_root) return SendPiece(stage_comm_, mine, sizes[own], *root, native);
        for (size_t rank = 0; rank < sizes.size(); ++rank) {
          if (rank == own) continue;
          ReceivePiece(stage_comm_, place(rank), sizes[rank], static_cast<int>(rank), native);
        }
      });
      if (is_root) stream.CopyOnDevice(place(own), mine, sizes[own]);
      return;
    }
    const bool equal = std::all_of(sizes.begin(), sizes.end(),
                                   [&](int64_t size) { return size == sizes.front(); });
    if (equal) {
      if (sizes.front() == 0) return;
      return Require(stage_comm_, nccl_.all_gather(mine, all, static_cast<size_t>(sizes.front()),
                                                   nccl::kBytes, stage_comm_, native));
    }
    Grouped(stage_comm_, [&] {
      for (size_t rank = 0; rank < sizes.size(); ++rank) {
        if (sizes[rank] == 0) continue;
        const void* const from =
            rank == own ? mine : place(rank);  // only used at the rank that owns the piece
        Require(stage_comm_,
                nccl_.broadcast(from, place(rank), static_cast<size_t>(sizes[rank]), nccl::kBytes,
                                static_cast<int>(rank), stage_comm_, native));
      }
    });
  }

  void Send(DeviceStream& stream, const void* data, int64_t bytes, int to) override {
    ThrowIfFailed();
    SendPiece(all_comm_, data, bytes, to, stream.handle().native);
  }
  void Receive(DeviceStream& stream, void* data, int64_t bytes, int from) override {
    ThrowIfFailed();
    ReceivePiece(all_comm_, data, bytes, from, stream.handle().native);
  }

  void Wait(DeviceStream& stream) override {
    const int64_t mine = ++sent_->counts[static_cast<size_t>(all_.rank())];
    WaitUntil([&] { return stream.IsIdle(); }, [&] { return Missing(mine); }, &stream);
    if (const Status status = stream.Synchronize(); !status) {
      all_.Fail(status.error().message);
      StopKernels(options_.stop);
      throw std::runtime_error(status.error().message);
    }
    ThrowIfFailed();  // Another rank may have stopped this rank's kernels.
  }

  void ThrowIfFailed() const override {
    if (std::string reason = all_.failure(); !reason.empty()) throw GroupError(reason);
  }

  bool AllAgree(bool mine) override {
    bool all = mine;
    for (int rank = 0; rank < stage_size_ && stage_ != nullptr; ++rank) {
      bool theirs = mine;
      stage_->Broadcast(&theirs, sizeof(theirs), rank, Patience::kStep);
      all = all && theirs;
    }
    return all;
  }

  void Abort(const std::string& reason) override {
    if (!reason.empty()) all_.Fail(reason);
    StopKernels(options_.stop);
    for (nccl::Comm* comm : {&stage_comm_, &all_comm_}) {
      if (*comm != nullptr) static_cast<void>(nccl_.abort(*comm));
      *comm = nullptr;
    }
  }

 private:
  // A pointer can be shared because the ranks are threads of one process.
  void ShareCounts() {
    if (all_.rank() == 0) sent_ = std::make_shared<SentWork>(all_.size());
    struct {
      const std::shared_ptr<SentWork>* counts;
    } from = {&sent_};
    all_.Broadcast(&from, sizeof(from), 0, Patience::kStep);
    if (all_.rank() != 0) sent_ = *from.counts;
    all_.Broadcast(nullptr, 0, 0, Patience::kStep);  // wait until all ranks have copied it
  }

  // NCCL sets `comm` as soon as it begins to create it, so that a failure can abort it.
  void Join(Communicator& group, nccl::Comm& comm) {
    nccl::UniqueId id = {};
    if (group.rank() == 0) Require(nullptr, nccl_.get_unique_id(&id));
    group.Broadcast(&id, sizeof(id), 0, Patience::kStep);
    nccl::Config config;
    const int result = nccl_.init_rank(&comm, group.size(), id, group.rank(), &config);
    Require(comm, result, "the ranks to join");
  }

  void SendPiece(nccl::Comm comm, const void* data, int64_t bytes, int to, void* native) {
    if (bytes == 0) return;
    Require(comm, nccl_.send(data, static_cast<size_t>(bytes), nccl::kBytes, to, comm, native));
  }
  void ReceivePiece(nccl::Comm comm, void* data, int64_t bytes, int from, void* native) {
    if (bytes == 0) return;
    Require(comm,
            nccl_.receive(data, static_cast<size_t>(bytes), nccl::kBytes, from, comm, native));
  }

  template <typename Calls>
  void Grouped(nccl::Comm comm, const Calls& calls) {
    ThrowIfFailed();
    Require(comm, nccl_.group_start());
    in_group_ = true;
    try {
      calls();
    } catch (...) {
      in_group_ = false;
      static_cast<void>(nccl_.group_end());
      throw;
    }
    in_group_ = false;
    Require(comm, nccl_.group_end());
  }

  // Checks a call's result. An error fails the group. Waits for a call in progress, except inside
  // an NCCL group, whose end waits for all calls.
  void Require(nccl::Comm comm, int result, const char* what = "an exchange to begin") {
    ThrowIfFailed();
    if (result == nccl::kInProgress && comm != nullptr && !in_group_) {
      WaitUntil(
          [&] {
            int state = nccl::kSuccess;
            result = nccl_.get_async_error(comm, &state);
            if (result == nccl::kSuccess) result = state;
            return result != nccl::kInProgress;
          },
          [&] { return fmt::format("NCCL did not get {}", what); });
    }
    if (result != nccl::kSuccess && result != nccl::kInProgress)
      FailAndThrow(Described(result, comm));
  }

  std::string Described(int result, nccl::Comm comm) const {
    const char* detail = comm == nullptr ? nullptr : nccl_.last_error(comm);
    const bool has_detail = detail != nullptr && *detail != 0;
    return fmt::format("NCCL failed: {}{}", nccl_.error_string(result),
                       has_detail ? fmt::format(" ({})", detail) : "");
  }

  // Waits until `done`. `late` returns the error text that goes before "within 300 s". `stream`:
  // synchronized after an abort, so that the caller's memory is not used afterwards.
  template <typename Done, typename Late>
  void WaitUntil(const Done& done, const Late& late, DeviceStream* stream = nullptr) {
    constexpr int kEagerLooks = 64;
    constexpr std::chrono::microseconds kPause{20};
    constexpr std::chrono::milliseconds kCheck{1};
    const Clock::time_point begin = Clock::now();
    Clock::time_point next_check = begin + kCheck;
    std::string reason;  // empty: another rank has reported the failure of the group
    bool gives_up = false;
    const auto check = [&] {
      const Clock::time_point now = Clock::now();
      if (gives_up || now < next_check) return;
      next_check = now + kCheck;
      reason = AsyncError();
      if (reason.empty() && now - begin > options_.deadline) {
        reason = fmt::format("{} within {} s", late(),
                             std::chrono::duration<double>(options_.deadline).count());
      }
      if (!reason.empty()) all_.Fail(reason);
      gives_up = !all_.failure().empty();
      if (gives_up) StopKernels(options_.stop);
    };
    // Emulated kernels run inside `done`, and may wait there.
    const emulated_wait::Scope scope(check);
    for (int look = 0;; ++look) {
      const bool is_done = done();
      if (!is_done) check();
      if (gives_up) {
        Abort(reason);
        if (stream != nullptr) static_cast<void>(stream->Synchronize());
        FailAndThrow(reason);
      }
      if (is_done) return;
      if (look < kEagerLooks)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(kPause);
    }
  }

  std::string AsyncError() const {
    for (const nccl::Comm comm : {stage_comm_, all_comm_}) {
      if (comm == nullptr) continue;
      int state = nccl::kSuccess;
      int result = nccl_.get_async_error(comm, &state);
      if (result == nccl::kSuccess) result = state;
      if (result != nccl::kSuccess && result != nccl::kInProgress) return Described(result, comm);
    }
    return "";
  }

  // Names the ranks that have enqueued fewer steps than `mine`.
  std::string Missing(int64_t mine) const {
    std::vector<int> missing;
    for (int rank = 0; rank < all_.size(); ++rank) {
      if (sent_->counts[static_cast<size_t>(rank)].load() < mine) missing.push_back(rank);
    }
    if (missing.empty()) return "the devices did not end a step that all ranks had sent them";
    return fmt::format("rank {} did not send its part of a step to its device",
                       fmt::join(missing, ", "));
  }

  // A later failure does not replace the reason.
  [[noreturn]] void FailAndThrow(const std::string& reason) {
    if (!reason.empty()) all_.Fail(reason);
    throw GroupError(all_.failure());
  }

  const nccl::Functions& nccl_;
  Communicator& all_;
  const DeviceCommunicatorOptions options_;
  std::shared_ptr<SentWork> sent_;
  nccl::Comm stage_comm_ = nullptr;
  nccl::Comm all_comm_ = nullptr;
  Communicator* stage_ = nullptr;
  int stage_rank_ = 0;
  int stage_size_ = 1;
  bool in_group_ = false;
};

}  // namespace

Result<std::unique_ptr<DeviceCommunicator>> MakeNcclGroup(
    const nccl::Functions& nccl, Communicator& all, Communicator* stage, DeviceStream& stream,
    const DeviceCommunicatorOptions& options) {
  auto group = std::make_unique<NcclGroup>(nccl, all, options);
  try {
    group->Connect(stage, stream);
  } catch (const GroupError& error) {
    return Fail(ErrorCode::kUnavailable, error.what());
  }
  return group;
}

}  // namespace sluice
