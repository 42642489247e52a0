// The sequences of one share that wait to be admitted, in order.
#pragma once

#include <cstdint>

#include <boost/intrusive/set.hpp>

#include "scheduler/scheduled_sequence.h"

namespace sluice {

// How waiting improves a rank: by one level for each `level_us` microseconds, until `max_levels`
// are gained. The gain is bounded so that a more urgent sequence stays ahead however long others
// have waited.
struct Ageing {
  int64_t level_us = 0;  // 0: waiting gains nothing
  int64_t max_levels = 0;

  int64_t full_gain_us() const { return level_us * max_levels; }
  // The rank of a sequence of `level` that has waited for `waited_us`, whose gain is not bounded
  // here.
  Rank RankOf(int64_t level, int64_t waited_us) const;

  friend bool operator==(const Ageing&, const Ageing&) = default;
};

// Ordered by the rank that each sequence has at the time, then by arrival. Insert, Remove and Next
// take logarithmic time (Next amortized); nothing is allocated, for the links are in the sequences.
// Thread safety: used by the engine's thread only. Ownership: refers to the sequences, which
// outlive their stay.
class WaitingQueue {
 public:
  explicit WaitingQueue(const Ageing& ageing) : ageing_(ageing) {}

  bool empty() const { return ripe_.empty() && ripening_.empty(); }

  // REQUIRES: level, order and waiting_since are set, and do not change while it is here.
  void Insert(ScheduledSequence& sequence);
  void Remove(ScheduledSequence& sequence);

  // The sequence to admit next. `now`: microseconds, never less than in an earlier call. REQUIRES:
  // not empty.
  ScheduledSequence& Next(int64_t now);
  // The rank of a sequence that waits.
  Rank RankAt(const ScheduledSequence& sequence, int64_t now) const;

  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const ScheduledSequence& sequence : ripe_) visit(sequence);
    for (const ScheduledSequence& sequence : ripening_) visit(sequence);
  }

 private:
  // While neither gains any more, levels and arrivals decide; while both do, their difference in
  // rank stays as it was.
  struct LevelOrder {
    bool operator()(const ScheduledSequence& a, const ScheduledSequence& b) const {
      return a.level != b.level ? a.level < b.level : a.order < b.order;
    }
  };
  struct RankOrder {
    bool operator()(const ScheduledSequence& a, const ScheduledSequence& b) const {
      return a.rank != b.rank ? a.rank < b.rank : a.order < b.order;
    }
  };
  struct SinceOrder {
    bool operator()(const ScheduledSequence& a, const ScheduledSequence& b) const {
      return a.waiting_since != b.waiting_since ? a.waiting_since < b.waiting_since
                                                : a.order < b.order;
    }
  };
  template <SequenceHook ScheduledSequence::*kHook, typename Order>
  using Set =
      boost::intrusive::set<ScheduledSequence,
                            boost::intrusive::member_hook<ScheduledSequence, SequenceHook, kHook>,
                            boost::intrusive::compare<Order>>;

  const Ageing ageing_;
  Set<&ScheduledSequence::rank_hook, LevelOrder> ripe_;       // those with their full gain
  Set<&ScheduledSequence::rank_hook, RankOrder> ripening_;    // the others, `rank` as at time 0
  Set<&ScheduledSequence::since_hook, SinceOrder> by_since_;  // the same
};

}  // namespace sluice
