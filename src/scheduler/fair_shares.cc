#include "scheduler/fair_shares.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/integer.h"

namespace sluice {

Share& FairShares::Join(uint64_t client) {
  std::unique_ptr<Share>& share = shares_[client];
  if (share == nullptr) {
    share = std::make_unique<Share>(ageing_);
    share->client = client;
    share->round = round_;
    ring_.insert(turn_, *share);
    if (turn_ == ring_.end()) turn_ = ring_.begin();
  }
  ++share->num_sequences;
  return *share;
}

void FairShares::Leave(Share& share) {
  if (--share.num_sequences > 0) return;
  CHECK(share.waiting.empty());
  if (turn_ == Ring::s_iterator_to(share)) Advance();
  if (ring_.size() == 1) turn_ = ring_.end();
  ring_.erase(Ring::s_iterator_to(share));
  shares_.erase(share.client);
}

int64_t FairShares::DeficitOf(const Share& share) const {
  return std::min(quantum_, share.deficit + (round_ - share.round) * quantum_);
}

Share* FairShares::LeastGiven() {
  Share* least = nullptr;
  for (Share& share : ring_) {
    ++num_visits_;
    if (share.first_prefill == nullptr) continue;
    Settle(share);
    if (least == nullptr || share.deficit > least->deficit) least = &share;
  }
  return least;
}

Share* FairShares::AtTurn() {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  while (true) {
    int64_t rounds = kNone;
    for (size_t left = ring_.size(); left > 0; --left, Advance()) {
      ++num_visits_;
      Share& share = *turn_;
      if (share.first_prefill == nullptr && share.waiting.empty()) continue;
      Settle(share);
      if (share.deficit > 0) return &share;
      rounds = std::min(rounds, CeilDiv(1 - share.deficit, quantum_));
    }
    if (rounds == kNone) return nullptr;
    round_ += rounds;
  }
}

}  // namespace sluice
