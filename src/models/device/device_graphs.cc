#include "models/device/device_graphs.h"

#include <algorithm>

#include "models/device/device_launches.h"
#include "models/device/device_step.h"

namespace sluice {

int64_t GraphBytes(const program::Program& program, const DeviceProgramWeights& weights,
                   const DecoderSpec& spec, const ModelOptions& options) {
  int64_t operations = 0;
  for (const int64_t sequences : options.recorded.sequences) {
    operations += DeviceStepInputs::NumLevels(spec, options, sequences) *
                  LaunchesOf(program, weights, sequences, options.max_context);
  }
  return operations * kGraphOperationBytes;
}

StepGraphs::StepGraphs(const RecordedSteps& steps, const void* keys)
    : pads_(steps.pads), keys_(keys) {
  for (const int64_t sequences : steps.sequences) sizes_.emplace_back().sequences = sequences;
}

const StepGraphs::Size* StepGraphs::Find(int64_t sequences, const void* keys) const {
  if (keys != keys_) return nullptr;
  const auto found = std::ranges::lower_bound(sizes_, sequences, {}, &Size::sequences);
  if (found == sizes_.end() || found->graphs.empty()) return nullptr;
  return pads_ || found->sequences == sequences ? &*found : nullptr;
}

}  // namespace sluice
