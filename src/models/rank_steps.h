// The loops of the ranks of a model, as step_channel.h draws them.
//
// A group lives or ends as a whole: whatever a rank throws fails it for all of them.
#pragma once

#include "models/model.h"
#include "models/step_channel.h"
#include "parallel/communicator.h"

namespace sluice {

// Rank 0: the halves of a step, as Model::Begin and Model::Finish, which take the others along.
// They throw what its share throws, and GroupError.
void LeadBegin(Communicator& all, StepChannel& channel, Model& share, ThreadPool& pool,
               const StepInput& input, KvCache& cache, float* logits);
void LeadFinish(Communicator& all, StepChannel& channel, Model& share, ThreadPool& pool);

// The other ranks: their shares of all steps, until there will be no more. Throws GroupError.
void FollowSteps(Communicator& all, StepChannel& channel, Model& share, ThreadPool& pool,
                 KvCache& cache);

}  // namespace sluice
