// `sluice serve` as a rank other than 0: no server, only the rank's share of every step.
#pragma once

#include "base/result.h"
#include "cli/rank_process.h"
#include "engine/process_ranks.h"
#include "options/settings.h"

namespace sluice::cli {

// The numbers of ranks in the options.
struct RankSizes {
  int tensor_size = 1;
  int num_stages = 1;
  int num_ranks() const { return tensor_size * num_stages; }
};
RankSizes RankSizesOf(const options::Settings& settings);

// Loads this rank's share of the model and computes steps until rank 0 stops them. Then leaves the
// group and returns 0. On an error, notifies the other ranks, waits until rank 0 ends, and ends
// this process without returning.
Result<int> RunServingRank(const options::Settings& settings, RankProcess& process,
                           const RankSizes& sizes);

}  // namespace sluice::cli
