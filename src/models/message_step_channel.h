// Sends steps as messages; several steps may be in flight.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "models/step_channel.h"
#include "models/step_message.h"

namespace sluice {

// Reads the LoRA adapter in `folder` into a slot of this rank.
using FillSlot = std::function<Status(int slot, const std::string& folder)>;

// An action of a rank in a separate process with new weights; see WeightStage.
enum class StageOrder : int64_t {
  kLoad,  // the rank begins to load the weights in the folder
  kAsk,   // the rank reports whether the weights are loaded
  kRest,  // the rank reports whether loading has ended, with success or an error
  kDrop,  // the rank drops the loaded weights; REQUIRES: no loading is in progress
};
// Returns whether the order is done: false while the weights load.
using TakeStageOrder = std::function<Result<bool>(StageOrder order, const std::string& folder)>;

class MessageStepChannel : public StepChannel {
 public:
  // Called at rank 0. Every other rank calls its FillSlot, inside Receive, after the steps
  // published so far. Returns when all ranks have done so, with the first error, which names the
  // rank. REQUIRES: limits.num_adapters > 0.
  virtual Status FillEverywhere(int slot, const std::string& folder) = 0;
  // Like FillEverywhere, but calls TakeStageOrder. Returns whether all ranks are done.
  virtual Result<bool> StageEverywhere(StageOrder order, const std::string& folder) = 0;
};

// `group` must outlive the channel and carry no other messages; use a Split. `limits` and
// `steps_in_flight` (maximum number of steps begun but not finished) are the same on all ranks.
// `fill_slot`: not used by rank 0, nor without adapters. `take_stage_order`: not used by rank 0.
std::unique_ptr<MessageStepChannel> MakeMessageStepChannel(Communicator& group,
                                                           const StepLimits& limits,
                                                           int steps_in_flight,
                                                           FillSlot fill_slot = {},
                                                           TakeStageOrder take_stage_order = {});

}  // namespace sluice
