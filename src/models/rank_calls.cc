#include "models/rank_calls.h"

#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "base/firewall.h"

namespace sluice {

RankCalls::RankCalls(Communicator& all)
    : all_(all), outer_(all.Split(0, all.size())), group_(outer_->Split(0, all.size())) {}

void RankCalls::AwaitReceived() {
  for (int rank = 0; rank < all_.size(); ++rank) {
    if (rank != all_.rank()) all_.AwaitPosted(rank, 0);
  }
}

template <typename Run>
void RankCalls::FailingAll(const Run& run) {
  try {
    run();
  } catch (...) {
    all_.Fail(CaughtMessage());
    throw;
  }
}

void RankCalls::Switch(StepChannel& channel) {
  channel.PublishCall({.kind = RankCall::Kind::kSwitch});
  AwaitReceived();
  for (int rank = 1; rank < group_->size(); ++rank) {
    char has_switched = 0;
    group_->Receive(&has_switched, sizeof(has_switched), rank);
  }
}

Status RankCalls::Record(StepChannel& channel, const std::function<Status()>& record) {
  channel.PublishCall({.kind = RankCall::Kind::kRecord});
  Status status;
  FailingAll([&] { status = record(); });
  if (!status) {
    all_.Fail(status.error().message);
    return status;
  }
  for (int rank = 1; rank < group_->size(); ++rank) {
    char has_recorded = 0;
    group_->Receive(&has_recorded, sizeof(has_recorded), rank);
  }
  return {};
}

void RankCalls::Read(StepChannel& channel, CacheBytes& own, const std::vector<int64_t>& shares,
                     CachePiece piece, int64_t place, std::byte* bytes) {
  channel.PublishCall({.kind = RankCall::Kind::kRead, .piece = piece, .place = place});
  FailingAll([&] { own.Read(piece, place, bytes); });
  for (int rank = 1; rank < group_->size(); ++rank) {
    bytes += shares[static_cast<size_t>(rank - 1)];
    group_->Receive(bytes, shares[static_cast<size_t>(rank)], rank);
  }
}

void RankCalls::Write(StepChannel& channel, CacheBytes& own, const std::vector<int64_t>& shares,
                      CachePiece piece, int64_t place, const std::byte* bytes) {
  channel.PublishCall({.kind = RankCall::Kind::kWrite, .piece = piece, .place = place});
  const std::byte* next = bytes;
  for (int rank = 1; rank < group_->size(); ++rank) {
    next += shares[static_cast<size_t>(rank - 1)];
    group_->Post(next, shares[static_cast<size_t>(rank)], rank);
  }
  FailingAll([&] { own.Write(piece, place, bytes); });
  for (int rank = 1; rank < group_->size(); ++rank) group_->AwaitPosted(rank, 0);
}

Model& RankCalls::CarryOut(const RankCall& call, Model& share, CacheBytes* own,
                           const std::function<Model&()>& switch_share,
                           const std::function<Status(Model&)>& record) {
  switch (call.kind) {
    case RankCall::Kind::kNone: break;
    case RankCall::Kind::kSwitch: {
      AwaitReceived();
      Model& next = switch_share();
      const char has_switched = 1;
      group_->Send(&has_switched, sizeof(has_switched), 0);
      return next;
    }
    case RankCall::Kind::kRecord: {
      CHECK(record != nullptr, "rank {} captures no graphs", all_.rank());
      if (const Status status = record(share); !status)
        throw std::runtime_error(status.error().message);
      const char has_recorded = 1;
      group_->Send(&has_recorded, sizeof(has_recorded), 0);
      break;
    }
    case RankCall::Kind::kRead:
    case RankCall::Kind::kWrite: {
      CHECK(own != nullptr, "rank {} moves no blocks", all_.rank());
      const int64_t bytes = own->BytesOf(call.piece);
      scratch_.resize(static_cast<size_t>(bytes));
      if (call.kind == RankCall::Kind::kRead) {
        own->Read(call.piece, call.place, scratch_.data());
        group_->Send(scratch_.data(), bytes, 0);
      } else {
        group_->Receive(scratch_.data(), bytes, 0);
        own->Write(call.piece, call.place, scratch_.data());
      }
      break;
    }
  }
  return share;
}

namespace {

class JointCacheBytes final : public CacheBytes {
 public:
  JointCacheBytes(RankCalls& calls, StepChannel& channel, std::unique_ptr<CacheBytes> own,
                  std::vector<int64_t> block_shares, std::vector<int64_t> state_shares,
                  FairMutex* is_speaking)
      : calls_(calls),
        channel_(channel),
        own_(std::move(own)),
        block_shares_(std::move(block_shares)),
        state_shares_(std::move(state_shares)),
        is_speaking_(is_speaking) {}

  int64_t BytesOf(CachePiece piece) const override {
    const std::vector<int64_t>& shares = SharesOf(piece);
    return std::accumulate(shares.begin(), shares.end(), int64_t{0});
  }
  void Read(CachePiece piece, int64_t place, std::byte* bytes) override {
    Speaking([&] { calls_.Read(channel_, *own_, SharesOf(piece), piece, place, bytes); });
  }
  void Write(CachePiece piece, int64_t place, const std::byte* bytes) override {
    Speaking([&] { calls_.Write(channel_, *own_, SharesOf(piece), piece, place, bytes); });
  }

 private:
  const std::vector<int64_t>& SharesOf(CachePiece piece) const {
    return piece == CachePiece::kBlock ? block_shares_ : state_shares_;
  }
  template <typename Run>
  void Speaking(const Run& run) {
    if (is_speaking_ == nullptr) return run();
    const FairMutexLock lock(*is_speaking_);
    run();
  }

  RankCalls& calls_;
  StepChannel& channel_;
  const std::unique_ptr<CacheBytes> own_;
  const std::vector<int64_t> block_shares_, state_shares_;
  FairMutex* const is_speaking_;
};

}  // namespace

std::unique_ptr<CacheBytes> MakeJointCacheBytes(RankCalls& calls, StepChannel& channel,
                                                std::unique_ptr<CacheBytes> own,
                                                std::vector<int64_t> block_shares,
                                                std::vector<int64_t> state_shares,
                                                FairMutex* is_speaking) {
  return std::make_unique<JointCacheBytes>(calls, channel, std::move(own), std::move(block_shares),
                                           std::move(state_shares), is_speaking);
}

}  // namespace sluice
