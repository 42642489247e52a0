// Divides the tokens of steps among clients by deficit round robin. A share is the scheduler's
// state for one client.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include <boost/intrusive/list.hpp>

#include "scheduler/scheduled_sequence.h"
#include "scheduler/waiting_queue.h"

namespace sluice {

// The state of one client.
struct Share
    : boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>> {
  explicit Share(const Ageing& ageing) : waiting(ageing) {}

  uint64_t client = 0;
  int64_t num_sequences = 0;  // number of the client's sequences in the scheduler
  int64_t num_running = 0;    // number of these that are running
  WaitingQueue waiting;
  // Number of tokens that the client may still get in this round; negative if it got too many.
  int64_t deficit = 0;
  int64_t round = 0;  // number of the round up to which `deficit` is settled
  // In the step being planned: the client's prefills that may get (more) tokens, linked by
  // `next_prefill`.
  ScheduledSequence* first_prefill = nullptr;
  ScheduledSequence* last_prefill = nullptr;
};

// Each round gives every share up to `quantum` tokens. One share has the turn, and keeps it until
// its deficit is used up or it has nothing to do. When no share with work has any deficit left, new
// rounds begin until one of these shares has some. A share may exceed its deficit, which reduces
// its next rounds: decodes cannot wait for a turn, and prefills continue while the share that has
// the turn lacks a place. Unused tokens are not saved beyond one quantum. A new share gets its
// first quantum in the next round, and its turn after the existing shares. So a stream of new
// clients takes no more from an old client than permanent clients would, if as many existed at the
// same time.
//
// Guarantees: of two shares that always have a waiting sequence, one gets at most one quantum more
// than the other, plus what its own running sequences still take beyond its deficit. Before a new
// share's first sequence is admitted, no other share can admit sequences with more than two quanta
// of tokens.
//
// Memory: one share per client with sequences. Only Join allocates. Thread safety: used by the
// engine's thread only.
class FairShares {
 public:
  // `quantum`: number of tokens that a share gets per round. `ageing`: how waiting improves ranks.
  // REQUIRES: quantum > 0.
  FairShares(int64_t quantum, const Ageing& ageing) : quantum_(quantum), ageing_(ageing) {}
  FairShares(const FairShares&) = delete;
  FairShares& operator=(const FairShares&) = delete;

  // Adds a sequence to the share of `client` and returns the share. A new share is the last in the
  // round.
  Share& Join(uint64_t client);
  // Removes a sequence from the share. A share without sequences is deleted, with its deficit: a
  // client without requests has neither credit nor debt.
  void Leave(Share& share);

  // Returns the share that has the turn; its deficit is positive. Null if no share has a prefill or
  // a waiting sequence.
  Share* AtTurn();
  // Returns the share with the largest deficit among those with a prefill; null if there is none.
  Share* LeastGiven();
  // Gives the turn back to this share.
  void ReturnTurn(Share& share) { turn_ = Ring::s_iterator_to(share); }

  void Charge(Share& share, int64_t tokens) {
    Settle(share);
    share.deficit -= tokens;
  }
  int64_t DeficitOf(const Share& share) const;
  int64_t quantum() const { return quantum_; }

  // Number of shares that AtTurn and LeastGiven have examined since construction. Measures their
  // work.
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
  std::unordered_map<uint64_t, std::unique_ptr<Share>> shares_;  // keyed by client
  Ring ring_;                                                    // all shares
  Ring::iterator turn_ = ring_.end();                            // end() only if there are no
                                                                 // shares
  int64_t round_ = 0;
  int64_t num_visits_ = 0;
};

}  // namespace sluice
