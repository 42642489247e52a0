// Plans the memory of what sequences keep beside their KV blocks: the states of recurrent layers.
#pragma once

#include "engine/engine_plan.h"

namespace sluice {

// kUnsupported where a part of the plan does not go together with such states.
Status CheckStates(const EnginePlan& plan);

// Takes their slots from `budget`, the bytes that the caches of one engine may take: one for each
// sequence that runs at a time, in at most half of the budget, or max_num_seqs is lowered; and with
// prefix caching slots for snapshots, EngineConfig::state_cache_bytes of them, or by default four a
// sequence in at most a quarter of the budget. kResourceExhausted where not even one sequence fits.
// Nothing to do where sequences keep none.
Status PlanStates(int64_t& budget, EnginePlan& plan);

}  // namespace sluice
