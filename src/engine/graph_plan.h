// Which steps a device records and replays.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/model.h"

namespace sluice {

// What is asked for, in numbers of sequences that go on by a token each.
struct GraphConfig {
  bool records = false;
  std::vector<int64_t> sizes;      // in any order; empty: chosen
  std::optional<int64_t> largest;  // of those that are chosen; none: kLargestGraph
  bool pads = true;                // steps of other numbers, to the next

  bool operator==(const GraphConfig&) const = default;
};
inline constexpr int64_t kLargestGraph = 512;

// Sizes in ascending order, each once, of at most `max_sequences`. Those that are chosen: powers of
// two, from 8 on with two between one and the next, and the largest; without padding all up to 32,
// then powers of two. `notes` gets a line where sizes that were asked for are left out.
RecordedSteps PlanGraphs(const GraphConfig& config, int64_t max_sequences,
                         std::vector<std::string>& notes);

}  // namespace sluice
