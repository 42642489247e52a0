// The part of an engine's plan that is of its draft model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/engine_plan.h"

namespace sluice {

// For messages: "the draft model in FOLDER".
std::string DrafterName(const DraftConfig& draft);

// Fills in `plan.draft`, but for bytes. kUnsupported and kInvalidArgument name
// speculative_config and say why `model` cannot propose tokens for `target`.
// `head`: of a drafting head, whose layers `model` are; else null.
Status PlanDraft(const ModelConfig& target, const ModelConfig& model,
                 std::shared_ptr<const DrafterSpec> head, EnginePlan& plan);

// Fills in what the draft's weights and workspace take for plan.max_model_len.
Status PlanDraftBytes(const PlanModelFunction& plan_model, int num_threads, EnginePlan& plan);

// Takes the draft's part of `budget`, the bytes for the caches of an engine.
void PlanDraftCache(int64_t& budget, EnginePlan& plan);

}  // namespace sluice
