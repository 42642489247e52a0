// Plans the step sizes for which a device captures CUDA graphs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/model.h"

namespace sluice {

// Graph options. A size is the number of sequences that decode one token each.
struct GraphConfig {
  bool records = false;
  std::vector<int64_t> sizes;      // in any order; empty: chosen automatically
  std::optional<int64_t> largest;  // largest automatically chosen size; nullopt: kLargestGraph
  bool pads = true;                // whether to pad steps to the next size
  // Whether graphs are a default, so that their absence needs no warning.
  bool is_default = false;

  bool operator==(const GraphConfig&) const = default;
};
inline constexpr int64_t kLargestGraph = 512;

// Returns graph sizes in ascending order, without duplicates, at most `max_sequences`.
// Automatically chosen sizes are the powers of two, 5/4 and 3/2 of each power from 8 on, and the
// largest size. Without padding, they are all sizes up to 32, larger powers of two, and the largest
// size. Adds a line to `notes` if configured sizes are left out.
RecordedSteps PlanGraphs(const GraphConfig& config, int64_t max_sequences,
                         std::vector<std::string>& notes);

}  // namespace sluice
