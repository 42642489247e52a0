// Steps between processes: as messages.
#pragma once

#include <memory>

#include "models/step_channel.h"
#include "models/step_message.h"

namespace sluice {

// Over a group of processes, which must outlive it. `limits` are the same on all ranks.
std::unique_ptr<StepChannel> MakeProcessStepChannel(Communicator& group, const StepLimits& limits);

}  // namespace sluice
