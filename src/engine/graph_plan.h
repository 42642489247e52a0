// Plans for which steps a device captures CUDA graphs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/model.h"

namespace sluice {

// Graph options; sizes are numbers of sequences that decode one token each.
struct GraphConfig {
  bool records = false;
  std::vector<int64_t> sizes;      // in any order; empty: chosen automatically
  std::optional<int64_t> largest;  // largest size chosen automatically; nullopt: kLargestGraph
  bool pads = true;                // pad steps to the next size

  bool operator==(const GraphConfig&) const = default;
};
inline constexpr int64_t kLargestGraph = 512;

// Graph sizes in ascending order, without duplicates, at most `max_sequences`. Chosen sizes are
// powers of two, from 8 on also 5/4 and 3/2 of each, and the largest; without padding, all sizes up
// to 32, larger powers of two, and the largest. Adds a line to `notes` if configured sizes are left
// out.
RecordedSteps PlanGraphs(const GraphConfig& config, int64_t max_sequences,
                         std::vector<std::string>& notes);

}  // namespace sluice
