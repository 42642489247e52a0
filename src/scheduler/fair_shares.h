// Divides the tokens of steps among clients: deficit round robin.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include <boost/intrusive/list.hpp>

#include "scheduler/scheduled_sequence.h"
#include "scheduler/waiting_queue.h"

namespace sluice {

// What the sequences of one client have together.
struct Share
    : boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>> {
  explicit Share(const Ageing& ageing) : waiting(ageing) {}

  uint64_t client = 0;
  int64_t num_sequences = 0;  // that the scheduler has of the client
  int64_t num_running = 0;    // of those
  WaitingQueue waiting;
  // Tokens that it may still be given in this round; negative where it was given more.
  int64_t deficit = 0;
  int64_t round = 0;  // up to which `deficit` is settled
  // In the step being planned: its prefills that may get (more) tokens, linked by `next_prefill`.
  ScheduledSequence* first_prefill = nullptr;
  ScheduledSequence* last_prefill = nullptr;
};

// In a round every share may be given `quantum` tokens. The turn goes round: the share that has it
// keeps it until its deficit is used up or it has nothing to do. When no share that has something
// to do may be given any more, the next rounds begin: as many as one of them needs. What a share is
// given beyond its deficit (decoding cannot wait for a turn, nor need prefills while the share at
// turn lacks a place) it lacks in the next rounds; what it leaves unused is not saved beyond one
// quantum. A new share has its first quantum in the round after it came, and its turn after those
// that were there: so an endless row of new clients takes no more from an old one than as many as
// are there at a time.
//
// So of two shares that always have a sequence that waits, one is given at most a quantum more than
// the other and what that was given beyond its deficit, which its running sequences bound. Before a
// new share's first sequence is admitted, no other has more than two quanta to admit sequences
// with.
//
// Memory: one share for each client that has sequences. Thread safety: used by the engine's thread
// only. Allocates in Join alone.
class FairShares {
 public:
  // `ageing`: of the sequences that wait. REQUIRES: quantum > 0.
  FairShares(int64_t quantum, const Ageing& ageing) : quantum_(quantum), ageing_(ageing) {}
  FairShares(const FairShares&) = delete;
  FairShares& operator=(const FairShares&) = delete;

  // The share of `client`, which has one more sequence. A new one comes last in the round.
  Share& Join(uint64_t client);
  // One fewer. The share of the last one is dropped, with what it was given too much: a client
  // without requests has neither credit nor debt.
  void Leave(Share& share);

  // The share that is next, null if none has something to do: a prefill, or a sequence that waits.
  // Its deficit is positive.
  Share* AtTurn();
  // The share with the largest deficit among those with a prefill; null if there is none.
  Share* LeastGiven();
  // The turn is this share's again.
  void ReturnTurn(Share& share) { turn_ = Ring::s_iterator_to(share); }

  void Charge(Share& share, int64_t tokens) {
    Settle(share);
    share.deficit -= tokens;
  }
  int64_t DeficitOf(const Share& share) const;
  int64_t quantum() const { return quantum_; }

  // Shares that were visited to choose one since construction: a measure of its work.
  int64_t num_visits() const { return num_visits_; }

  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const Share& share : ring_) visit(share);
  }

 private:
  using Ring = boost::intrusive::list<Share>;

  void Settle(Share& share) {
    share.deficit = DeficitOf(share);
    share.round = round_;
  }
  void Advance() {
    if (++turn_ == ring_.end()) turn_ = ring_.begin();
  }

  const int64_t quantum_;
  const Ageing ageing_;
  std::unordered_map<uint64_t, std::unique_ptr<Share>> shares_;  // by client
  Ring ring_;                                                    // of all shares
  Ring::iterator turn_ = ring_.end();                            // end() only while there is none
  int64_t round_ = 0;
  int64_t num_visits_ = 0;
};

}  // namespace sluice
