// How a step reaches the ranks of a model.
//
// Rank 0 has the engine: requests, scheduler, cache index and sampler. Its `ParallelModel` is the
// Model that the engine sees. Model::Forward there publishes the engine's StepInput, computes rank
// 0's share and returns the logits; every other rank runs a loop of Receive, Forward of its own
// share, and Finish:
//
//   rank 0                                  ranks 1, 2, ...
//   Publish(input)                          while (const StepInput* input = Receive()) {
//   share.Forward(input, cache, logits)       share.Forward(*input, cache, nullptr);
//   Finish()                                  Finish();
//                                           }
//
// All ranks use the same block ids, each in a cache of its own with the layers and the heads of its
// share. What the shares say to each other inside Forward goes through a Communicator.
//
// Between threads Publish broadcasts a pointer; between processes the step itself: tokens,
// positions, logit rows, slices, and of the block tables what is new.
#pragma once

#include <memory>

#include "models/model.h"
#include "parallel/communicator.h"

namespace sluice {

// One a rank. A failure is a GroupError, as of the communicator that it is made over. Thread
// safety: that of the communicator.
class StepChannel {
 public:
  virtual ~StepChannel() = default;

  // Rank 0 alone. `input` and what it points to stay as they are until Finish has returned.
  virtual void Publish(const StepInput& input) = 0;
  // Rank 0 alone: there will be no more steps.
  virtual void Close() = 0;
  // The other ranks: waits for the next step, as long as it takes; null when there will be none.
  // Valid until Finish returns.
  virtual const StepInput* Receive() = 0;
  // All ranks, after their share of the step.
  virtual void Finish() = 0;
};

// Between threads, over a group of MakeLocalGroup, which must outlive it.
std::unique_ptr<StepChannel> MakeLocalStepChannel(Communicator& group);

}  // namespace sluice
