// Steps as messages, of which several may be in flight.
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

class MessageStepChannel : public StepChannel {
 public:
  // Rank 0 alone: every other rank calls its FillSlot, inside Receive, after the steps that have
  // been published. Returns when all have; the first error, which names the rank. REQUIRES:
  // limits.num_adapters > 0.
  virtual Status FillEverywhere(int slot, const std::string& folder) = 0;
};

// Over a group, which must outlive it; of its own messages, a Split of it. `limits` and
// `steps_in_flight`, the most that are begun and not finished, are the same on all ranks.
// `fill_slot`: not used by rank 0, nor without adapters.
std::unique_ptr<MessageStepChannel> MakeMessageStepChannel(Communicator& group,
                                                           const StepLimits& limits,
                                                           int steps_in_flight,
                                                           FillSlot fill_slot = {});

}  // namespace sluice
