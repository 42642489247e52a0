// Plans the memory for the states of recurrent layers, which sequences have in addition to KV
// blocks.
#pragma once

#include "engine/engine_plan.h"

namespace sluice {

// Returns kUnsupported if a part of the plan cannot be combined with such states.
Status CheckStates(const EnginePlan& plan);

// Subtracts the state slots of one engine from `budget`, the bytes for its caches. Plans one slot
// for each running sequence, in at most half of the budget; if that is too little, lowers
// max_num_seqs. With prefix caching, also plans slots for snapshots:
// EngineConfig::state_cache_bytes, by default four per sequence in at most a quarter of the budget.
// kResourceExhausted if not even one sequence fits. Does nothing if the model has no states.
Status PlanStates(int64_t& budget, EnginePlan& plan);

}  // namespace sluice
