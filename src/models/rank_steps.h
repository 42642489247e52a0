// The ranks' loops for the steps of a model; see the diagram in step_channel.h.
//
// An exception on any rank fails the group for all ranks.
#pragma once

#include <functional>

#include "models/model.h"
#include "models/step_channel.h"
#include "parallel/communicator.h"

namespace sluice {

// Called at rank 0: Model::Begin and Model::Finish, which also run the step on the other ranks.
// Both throw the exceptions of this rank's share, and GroupError.
void LeadBegin(Communicator& all, StepChannel& channel, Model& share, ThreadPool& pool,
               const StepInput& input, KvCache& cache, float* logits);
void LeadFinish(Communicator& all, StepChannel& channel, Model& share, ThreadPool& pool);

// Executes a call on a rank that computes with `share`. Returns the model for the following steps.
using CarryOut = std::function<Model&(const RankCall& call, Model& share)>;

// Called at the other ranks: computes their shares of all steps until Close, and executes calls.
// Throws GroupError. `carry_out` may be empty if there are no calls.
void FollowSteps(Communicator& all, StepChannel& channel, Model& share, ThreadPool& pool,
                 KvCache& cache, const CarryOut& carry_out = {});

}  // namespace sluice
