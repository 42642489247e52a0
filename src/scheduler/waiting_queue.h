// The sequences of one share that wait to be admitted, in order.
#pragma once

#include <cstdint>

#include <boost/intrusive/set.hpp>

#include "scheduler/scheduled_sequence.h"

namespace sluice {

// Ordered by rank, then by arrival. Insert and Remove take logarithmic time, Next constant time;
// nothing is allocated, for the links are in the sequences. Thread safety: used by the engine's
// thread only. Ownership: refers to the sequences, which outlive their stay.
class WaitingQueue {
 public:
  bool empty() const { return by_rank_.empty(); }
  int64_t size() const { return static_cast<int64_t>(by_rank_.size()); }

  void Insert(ScheduledSequence& sequence);
  void Remove(ScheduledSequence& sequence);

  struct Candidate {
    ScheduledSequence* sequence = nullptr;
    bool is_aged = false;  // it goes before others of a better rank
  };
  // The sequence to admit next: the first; or the one that arrived first of all, if it has waited
  // for `ageing_steps` since it was added or since the last such turn. REQUIRES: not empty.
  Candidate Next(int64_t step, int64_t ageing_steps);
  // An aged candidate was admitted.
  void NoteAgeingTurn(int64_t step) { last_ageing_turn_ = step; }

  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const ScheduledSequence& sequence : by_rank_) visit(sequence);
  }

 private:
  struct RankOrder {
    bool operator()(const ScheduledSequence& a, const ScheduledSequence& b) const {
      return a.rank != b.rank ? a.rank < b.rank : a.order < b.order;
    }
  };
  struct ArrivalOrder {
    bool operator()(const ScheduledSequence& a, const ScheduledSequence& b) const {
      return a.order < b.order;
    }
  };
  template <SequenceHook ScheduledSequence::*kHook, typename Order>
  using Set =
      boost::intrusive::set<ScheduledSequence,
                            boost::intrusive::member_hook<ScheduledSequence, SequenceHook, kHook>,
                            boost::intrusive::compare<Order>>;

  Set<&ScheduledSequence::rank_hook, RankOrder> by_rank_;
  Set<&ScheduledSequence::arrival_hook, ArrivalOrder> by_arrival_;
  int64_t last_ageing_turn_ = 0;
};

}  // namespace sluice
