#include "engine/graph_plan.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice {
namespace {

std::vector<int64_t> ChosenSizes(int64_t largest, bool pads) {
  constexpr int64_t kEachUpTo = 32;  // without padding, all sizes up to this one are captured
  std::vector<int64_t> sizes;
  if (pads) {
    for (int64_t size = 1; size <= largest; size *= 2) {
      sizes.push_back(size);
      if (size < 8) continue;
      for (const int64_t between : {size / 4 * 5, size / 2 * 3}) sizes.push_back(between);
    }
  } else {
    for (int64_t size = 1; size <= kEachUpTo; ++size) sizes.push_back(size);
    for (int64_t size = 2 * kEachUpTo; size <= largest; size *= 2) sizes.push_back(size);
  }
  std::erase_if(sizes, [&](int64_t size) { return size > largest; });
  if (sizes.empty() || sizes.back() != largest) sizes.push_back(largest);
  return sizes;
}

}  // namespace

RecordedSteps PlanGraphs(const GraphConfig& config, int64_t max_sequences,
                         std::vector<std::string>& notes) {
  RecordedSteps steps;
  steps.pads = config.pads;
  if (!config.records) return steps;
  if (config.sizes.empty()) {
    const int64_t largest = std::min(config.largest.value_or(kLargestGraph), max_sequences);
    steps.sequences = ChosenSizes(largest, config.pads);
    return steps;
  }
  std::vector<int64_t> beyond;
  for (const int64_t size : config.sizes)
    (size <= max_sequences ? steps.sequences : beyond).push_back(size);
  for (std::vector<int64_t>* sizes : {&steps.sequences, &beyond}) {
    std::ranges::sort(*sizes);
    sizes->erase(std::unique(sizes->begin(), sizes->end()), sizes->end());
  }
  if (!beyond.empty()) {
    // Steps with more sequences than the largest remaining size are padded to max_sequences.
    if (config.pads && (steps.sequences.empty() || steps.sequences.back() < max_sequences))
      steps.sequences.push_back(max_sequences);
    notes.push_back(
        fmt::format("graphs: cudagraph_capture_sizes contains {}, but a step has at most {} "
                    "sequences (max_num_seqs)",
                    fmt::join(beyond, ", "), max_sequences));
  }
  return steps;
}

}  // namespace sluice
