// Which models are in memory: a pure policy, without clock, threads or engines.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

// A model that is in memory, or on its way there or out.
struct PlacedModel {
  int model = 0;      // which one
  int64_t bytes = 0;  // that it takes
  bool is_pinned = false;
  int64_t priority = 0;
  bool is_settled = true;  // loaded, and not on its way
  bool is_busy = false;    // requests are in flight
  bool had_a_turn = true;  // long enough to be asked to leave although it is busy
  int64_t last_used = 0;   // any clock; of idle ones the smallest leaves first
};

// A model that a request asks for.
struct WantedModel {
  int model = 0;
  int64_t bytes = 0;
  int64_t priority = 0;
};

struct Placement {
  enum class Answer {
    kNow,    // it fits once `put_out` have left
    kLater,  // when models that are busy or on their way have left or settled
    kNever,  // pinned ones leave too little of the budget
  };
  Answer answer = Answer::kNow;
  std::vector<int> put_out;  // kNow: idle models, in the order in which they leave
  std::vector<int> close;    // kLater: busy ones that are to take no more requests until they left
};

// The rules: what is pinned never leaves. Idle models leave before busy ones, those of lower
// priority before others, then those that were used longest ago; none leaves without need. Where
// idle ones are not enough, busy ones of no higher priority than the wanted one that had a turn
// take no more requests.
Placement Place(int64_t budget_bytes, const std::vector<PlacedModel>& placed,
                const WantedModel& wanted);

// Bytes of the pinned ones but for `model`.
int64_t PinnedBytes(const std::vector<PlacedModel>& placed, int model);

}  // namespace sluice
