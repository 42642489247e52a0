// Finds the smallest set of requests that still shows a difference.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace sluice::recording {

// Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", TSE
// 2002): tries subsets and complements of ever smaller parts. `shows(subset)`: whether the subset,
// in the order of `all`, still shows it. Returns a subset that does, from which no single request
// can be left out. `most_trials` bounds the calls: then the best subset so far is returned.
// REQUIRES: shows(all).
std::vector<uint64_t> Minimize(const std::vector<uint64_t>& all,
                               const std::function<bool(const std::vector<uint64_t>&)>& shows,
                               int64_t most_trials);

}  // namespace sluice::recording
