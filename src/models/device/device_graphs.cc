#include "models/device/device_graphs.h"

#include <algorithm>

namespace sluice {

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
