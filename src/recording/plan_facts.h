// What the steps of an engine depend on besides its model and requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "engine/engine_plan.h"

namespace sluice::recording {

// A JSON object: limits of the scheduler, sizes of the caches, and the policy. Equal plans give
// equal texts.
std::string PlanFacts(const EnginePlan& plan);

// The facts that a replay must be told, since they are derived from the machine.
struct PlanSizes {
  int64_t max_model_len = 0, max_num_seqs = 0, max_num_batched_tokens = 0, num_blocks = 0;
};
// kInvalidData if `facts` is not what PlanFacts writes.
Result<PlanSizes> ReadPlanSizes(std::string_view facts);

// Names the first fact in which two texts differ: "num_blocks: expected 12, found 10"; "" if they
// are equal.
std::string DifferenceOfFacts(std::string_view expected, std::string_view found);

}  // namespace sluice::recording
