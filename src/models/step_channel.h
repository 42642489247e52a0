// How a step reaches the ranks of a model.
//
// Rank 0 has the engine: requests, scheduler, cache index and sampler. Its `ParallelModel` is the
// Model that the engine sees. Model::Begin there publishes the engine's StepInput and begins rank
// 0's share of the step; Finish ends it. Every other rank does the same in the same order:
//
//   rank 0                                  ranks 1, 2, ...
//   Publish(input)                          while (const StepOrder order = Receive()) {
//   share.Begin(input, cache, logits)         if (order.input) {
//   EndReading()                                share.Begin(*order.input, cache, nullptr);
//                                               EndReading();
//   PublishFinish()                           }
//   share.Finish()                            if (order.finishes) {
//   EndStep()                                   share.Finish();
//                                               EndStep();
//                                             }
//                                           }
//
// All ranks use the same block ids, each in a cache of its own with the layers and the heads of its
// share. What the shares say to each other inside Begin and Finish goes through a Communicator.
//
// Where one step is in flight at a time, threads broadcast a pointer. Else, and between processes,
// the step itself travels as a message: tokens, positions, logit rows, slices, and of the block
// tables what is new.
#pragma once

#include <memory>

#include "models/model.h"
#include "parallel/communicator.h"

namespace sluice {

// What a rank is told to do, in this order; neither: there will be no more steps.
struct StepOrder {
  const StepInput* input = nullptr;  // not null: to begin this step
  bool finishes = false;             // to finish the step that began first

  explicit operator bool() const { return input != nullptr || finishes; }
};

// One a rank. A failure is a GroupError, as of the communicator that it is made over. Thread
// safety: that of the communicator.
class StepChannel {
 public:
  virtual ~StepChannel() = default;

  // Rank 0 alone. `input` and what it points to stay as they are until EndReading has returned.
  virtual void Publish(const StepInput& input) = 0;
  virtual void PublishFinish() = 0;
  // Rank 0 alone: there will be no more steps.
  virtual void Close() = 0;
  // The other ranks: waits for what comes next, as long as it takes. The input is valid until the
  // next call.
  virtual StepOrder Receive() = 0;
  // All ranks, when they have begun their share of a step.
  virtual void EndReading() = 0;
  // All ranks, when they have finished it.
  virtual void EndStep() = 0;
};

// Between threads, over a group of MakeLocalGroup, which must outlive it; one step at a time.
// `ends_apart`: EndStep returns when all ranks have called it. So it is with devices: what has
// failed on one is known to its rank alone until then.
std::unique_ptr<StepChannel> MakeLocalStepChannel(Communicator& group, bool ends_apart);

}  // namespace sluice
