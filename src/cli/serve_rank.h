// `sluice serve` as a rank other than 0: no server, only its share of every step.
#pragma once

#include "base/result.h"
#include "cli/rank_process.h"
#include "engine/process_ranks.h"
#include "options/settings.h"

namespace sluice::cli {

// How many ranks the options ask for.
struct RankSizes {
  int tensor_size = 1;
  int num_stages = 1;
  int num_ranks() const { return tensor_size * num_stages; }
};
RankSizes RankSizesOf(const options::Settings& settings);

// Loads its share and computes steps until rank 0 ends; 0 when it ended in order. Where something
// fails, all ranks hear of it and this process ends with rank 0.
Result<int> RunServingRank(const options::Settings& settings, RankProcess& process,
                           const RankSizes& sizes);

}  // namespace sluice::cli
