// Passes steps from rank 0 to the other ranks of a model.
//
// Rank 0 has the engine: requests, scheduler, cache index and sampler. Its `ParallelModel` is the
// engine's Model: Begin publishes the engine's StepInput and begins rank 0's share of the step;
// Finish ends it. Every other rank does the same in the same order:
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
// All ranks use the same block ids, each in its own cache with the layers and heads of its share.
// Inside Begin and Finish, the shares exchange data through a Communicator.
//
// If one step at a time is in flight, threads broadcast a pointer. Otherwise, and between
// processes, the step is sent as a message: tokens, positions, logit rows, slices, and the changed
// entries of block tables.
#pragma once

#include <memory>

#include "models/model.h"
#include "models/rank_call.h"
#include "parallel/communicator.h"

namespace sluice {

// Orders for a rank, executed in the order of the members. If no member is set, no steps follow.
struct StepOrder {
  const StepInput* input = nullptr;  // if not null: begin this step
  bool finishes = false;             // finish the oldest step in flight
  RankCall call = {};                // if set: execute this call instead

  explicit operator bool() const {
    return input != nullptr || finishes || call.kind != RankCall::Kind::kNone;
  }
};

// Each rank has one. A failure is a GroupError, as in its communicator. Thread safety: as for the
// communicator.
class StepChannel {
 public:
  virtual ~StepChannel() = default;

  // Called at rank 0. `input` and the data it points to must not change until EndReading returns.
  virtual void Publish(const StepInput& input) = 0;
  virtual void PublishFinish() = 0;
  // Called at rank 0: the other ranks execute this call after the steps published so far, and
  // answer outside of the channel.
  virtual void PublishCall(const RankCall& call) = 0;
  // Called at rank 0: announces that no more steps follow.
  virtual void Close() = 0;
  // Called at other ranks: waits for the next order, without a timeout. The input is valid until
  // the next call.
  virtual StepOrder Receive() = 0;
  // Called at all ranks when they have begun their share of a step.
  virtual void EndReading() = 0;
  // Called at all ranks when they have finished a step.
  virtual void EndStep() = 0;
};

// Returns a channel between threads, for one step in flight. `group` is from MakeLocalGroup and
// must outlive the channel. `ends_apart`: whether EndStep waits until all ranks have called it.
// Devices need this, because a failure is known only to its own rank until then.
std::unique_ptr<StepChannel> MakeLocalStepChannel(Communicator& group, bool ends_apart);

}  // namespace sluice
