// The waiting sequences of a share, in the order in which they are admitted.
#pragma once

#include <cstdint>

#include <boost/intrusive/set.hpp>

#include "scheduler/scheduled_sequence.h"

namespace sluice {

// How waiting improves a rank: by one level per `level_us` microseconds, up to `max_levels` levels.
// The gain is limited so that a much more urgent sequence stays first however long others have
// waited.
struct Ageing {
  int64_t level_us = 0;  // 0: waiting gains nothing
  int64_t max_levels = 0;

  int64_t full_gain_us() const { return level_us * max_levels; }
  // The rank of a sequence of `level` that has waited for `waited_us`, without the limit of the
  // gain.
  Rank RankOf(int64_t level, int64_t waited_us) const;

  friend bool operator==(const Ageing&, const Ageing&) = default;
};

// Orders sequences by current rank, then by arrival. Insert, Remove and Next take logarithmic time
// (Next amortized) and do not allocate, because the links are in the sequences. Thread safety: used
// by the engine's thread only. Ownership: refers to the sequences, which must outlive their time in
// the queue.
class WaitingQueue {
 public:
  explicit WaitingQueue(const Ageing& ageing) : ageing_(ageing) {}

  bool empty() const { return ripe_.empty() && ripening_.empty(); }

  // REQUIRES: level, order and waiting_since are set, and do not change while the sequence is in
  // the queue.
  void Insert(ScheduledSequence& sequence);
  void Remove(ScheduledSequence& sequence);

  // Returns the sequence to admit next. `now`: microseconds, never less than in an earlier call.
  // REQUIRES: the queue is not empty.
  ScheduledSequence& Next(int64_t now);
  // The current rank of a waiting sequence.
  Rank RankAt(const ScheduledSequence& sequence, int64_t now) const;

  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const ScheduledSequence& sequence : ripe_) visit(sequence);
    for (const ScheduledSequence& sequence : ripening_) visit(sequence);
  }

 private:
  // Two sequences that have their full gain are ordered by level, then by arrival. Two that still
  // gain have a constant difference in rank.
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
  Set<&ScheduledSequence::rank_hook, LevelOrder> ripe_;  // sequences with their full gain
  // The other sequences, sorted by rank; `rank` is the value at time 0.
  Set<&ScheduledSequence::rank_hook, RankOrder> ripening_;
  Set<&ScheduledSequence::since_hook, SinceOrder> by_since_;  // the others, sorted by waiting_since
};

}  // namespace sluice
