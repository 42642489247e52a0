// The facts about an engine on which its steps depend, in addition to its model and requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "engine/engine_plan.h"

namespace sluice::recording {

// Returns a JSON object with the scheduler's limits, the sizes of the caches, and the policy. Equal
// plans give equal texts.
std::string PlanFacts(const EnginePlan& plan);

// The facts that a replay reads from the recording, because an engine would derive them from the
// machine.
struct PlanSizes {
  int64_t max_model_len = 0, max_num_seqs = 0, max_num_batched_tokens = 0, num_blocks = 0;
};
// Reads the sizes from `facts`. kInvalidData if PlanFacts did not write them.
Result<PlanSizes> ReadPlanSizes(std::string_view facts);

// Returns the first fact in which two texts differ, such as "num_blocks: expected 12, found 10"; ""
// if they are equal.
std::string DifferenceOfFacts(std::string_view expected, std::string_view found);

}  // namespace sluice::recording
