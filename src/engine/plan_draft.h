// Plans an engine's draft model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/engine_plan.h"

namespace sluice {

// Returns a name for messages: "the draft model in FOLDER".
std::string DrafterName(const DraftConfig& draft);

// Fills in `plan.draft` except for its sizes in bytes. kUnsupported and kInvalidArgument name
// speculative_config and say why `model` cannot propose tokens for `target`. `head`: the drafting
// head that consists of the layers of `model`; null for a draft model.
Status PlanDraft(const ModelConfig& target, const ModelConfig& model,
                 std::shared_ptr<const DrafterSpec> head, EnginePlan& plan);

// Fills in the bytes of the draft's weights and workspace, for plan.max_model_len.
Status PlanDraftBytes(const PlanModelFunction& plan_model, int num_threads, EnginePlan& plan);

// Subtracts the draft's cache from `budget`, the bytes for the caches of an engine.
void PlanDraftCache(int64_t& budget, EnginePlan& plan);

}  // namespace sluice
