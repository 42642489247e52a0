// Finds the smallest set of requests that still shows a difference.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace sluice::recording {

// Minimizes by delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing
// input", TSE 2002): tries subsets and complements of ever smaller parts. `shows(subset)`: whether
// the subset, in the order of `all`, still shows the difference. Returns a subset that shows it and
// from which no single request can be removed. After `most_trials` calls of `shows`, returns the
// smallest subset so far. REQUIRES: shows(all).
std::vector<uint64_t> Minimize(const std::vector<uint64_t>& all,
                               const std::function<bool(const std::vector<uint64_t>&)>& shows,
                               int64_t most_trials);

}  // namespace sluice::recording
