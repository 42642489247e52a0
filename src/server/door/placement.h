// Decides which models are in memory: a pure policy, without clock, threads or engines.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

// A model that is in memory, or is being loaded or unloaded.
struct PlacedModel {
  int model = 0;      // index of the model
  int64_t bytes = 0;  // memory that it takes
  bool is_pinned = false;
  int64_t priority = 0;
  bool is_settled = true;  // false: it is being loaded or unloaded
  bool is_busy = false;    // whether requests are in flight
  bool had_a_turn = true;  // whether it was loaded long enough to be unloaded although it is busy
  int64_t last_used = 0;   // time of any clock; the smallest is unloaded first
};

// A model that a request needs.
struct WantedModel {
  int model = 0;
  int64_t bytes = 0;
  int64_t priority = 0;
};

struct Placement {
  enum class Answer {
    kNow,  // the model fits once `put_out` are unloaded
    // The model fits only after busy models are unloaded, or after loads and unloads have ended.
    kLater,
    kNever,  // the pinned models leave too little of the budget
  };
  Answer answer = Answer::kNow;
  std::vector<int> put_out;  // for kNow: idle models to unload, in this order
  std::vector<int> close;    // for kLater: busy models that must take no requests until unloaded
};

// Decides how to make room for a model. Pinned models are never unloaded, and no model is unloaded
// without need. Idle models are unloaded before busy ones; within each group, models with a lower
// priority are first, then the least recently used. If unloading idle models is not enough, busy
// models are closed to new requests. This applies only to busy models that had a turn and whose
// priority does not exceed that of the model to load.
Placement Place(int64_t budget_bytes, const std::vector<PlacedModel>& placed,
                const WantedModel& wanted);

// Bytes of the pinned models, except `model`.
int64_t PinnedBytes(const std::vector<PlacedModel>& placed, int model);

}  // namespace sluice
