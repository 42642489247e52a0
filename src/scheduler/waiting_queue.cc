#include "scheduler/waiting_queue.h"

#include <algorithm>

namespace sluice {

void WaitingQueue::Insert(ScheduledSequence& sequence) {
  by_rank_.insert(sequence);
  by_arrival_.insert(sequence);
}

void WaitingQueue::Remove(ScheduledSequence& sequence) {
  by_rank_.erase(by_rank_.iterator_to(sequence));
  by_arrival_.erase(by_arrival_.iterator_to(sequence));
}

WaitingQueue::Candidate WaitingQueue::Next(int64_t step, int64_t ageing_steps) {
  ScheduledSequence& first = *by_rank_.begin();
  ScheduledSequence& oldest = *by_arrival_.begin();
  if (&oldest != &first &&
      step - std::max(oldest.waiting_since, last_ageing_turn_) >= ageing_steps) {
    return {&oldest, true};
  }
  return {&first, false};
}

}  // namespace sluice
