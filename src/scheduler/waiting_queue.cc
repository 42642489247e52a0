#include "scheduler/waiting_queue.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace sluice {

Rank Ageing::RankOf(int64_t level, int64_t waited_us) const {
  if (level_us == 0) return {.level = level};
  const int64_t gained = waited_us / level_us + (waited_us % level_us > 0 ? 1 : 0);  // rounded up
  Rank rank;
  if (__builtin_sub_overflow(level, gained, &rank.level)) {
    rank.level =
        gained > 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
  }
  rank.fraction_us = gained * level_us - waited_us;
  return rank;
}

void WaitingQueue::Insert(ScheduledSequence& sequence) {
  sequence.has_full_gain = ageing_.full_gain_us() == 0;
  if (sequence.has_full_gain) {
    ripe_.insert(sequence);
    return;
  }
  sequence.rank = ageing_.RankOf(sequence.level, -sequence.waiting_since);
  ripening_.insert(sequence);
  by_since_.insert(sequence);
}

void WaitingQueue::Remove(ScheduledSequence& sequence) {
  if (sequence.has_full_gain) {
    ripe_.erase(ripe_.iterator_to(sequence));
    return;
  }
  ripening_.erase(ripening_.iterator_to(sequence));
  by_since_.erase(by_since_.iterator_to(sequence));
}

Rank WaitingQueue::RankAt(const ScheduledSequence& sequence, int64_t now) const {
  return ageing_.RankOf(sequence.level,
                        std::min(now - sequence.waiting_since, ageing_.full_gain_us()));
}

ScheduledSequence& WaitingQueue::Next(int64_t now) {
  while (!by_since_.empty() && now - by_since_.begin()->waiting_since >= ageing_.full_gain_us()) {
    ScheduledSequence& sequence = *by_since_.begin();
    Remove(sequence);
    sequence.has_full_gain = true;
    ripe_.insert(sequence);
  }
  CHECK(!empty());
  if (ripening_.empty()) return *ripe_.begin();
  if (ripe_.empty()) return *ripening_.begin();
  ScheduledSequence& ripe = *ripe_.begin();
  ScheduledSequence& ripening = *ripening_.begin();
  const Rank first = RankAt(ripe, now), second = RankAt(ripening, now);
  if (first != second) return first < second ? ripe : ripening;
  return ripe.order < ripening.order ? ripe : ripening;
}

}  // namespace sluice
