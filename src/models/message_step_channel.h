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
  kLoad,  // begins to load the weights in the folder
  kAsk,   // reports whether they are loaded
  kRest,  // reports whether loading has ended, with success or an error
  kDrop,  // REQUIRES: nothing loads
};
// Returns whether the order is done: false while the weights load.
using TakeStageOrder = std::function<Result<bool>(StageOrder order, const std::string& folder)>;

class MessageStepChannel : public StepChannel {
 public:
  // Called at rank 0: every other rank calls its FillSlot, inside Receive, after the steps
  // published so far. Returns when all have done so; the first error, which names the rank.
  // REQUIRES: limits.num_adapters > 0.
  virtual Status FillEverywhere(int slot, const std::string& folder) = 0;
  // Like the function above, with TakeStageOrder. Returns whether all ranks are done.
  virtual Result<bool> StageEverywhere(StageOrder order, const std::string& folder) = 0;
};

// Uses a group, which must outlive the channel and carry no other messages (a Split). `limits` and
// `steps_in_flight` (maximum number of steps begun but not finished) are the same on all ranks.
// `fill_slot`: not used by rank 0, nor without adapters. `take_stage_order`: not used by rank 0.
std::unique_ptr<MessageStepChannel> MakeMessageStepChannel(Communicator& group,
                                                           const StepLimits& limits,
                                                           int steps_in_flight,
                                                           FillSlot fill_slot = {},
                                                           TakeStageOrder take_stage_order = {});

}  // namespace sluice
