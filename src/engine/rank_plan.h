// How many ranks compute a model on this machine's CPUs or devices, and with which threads.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine_config.h"
#include "hardware/topology.h"
#include "models/parallel_model.h"

namespace sluice {

struct RankPlan {
  int tensor_size = 1;                      // ranks that share each layer
  int num_stages = 1;                       // that divide the layers
  std::vector<RankThreads> threads = {{}};  // by rank
  std::string note;                         // where the options ask for several: what became of it
  bool fewer = false;                       // there are not so many as the options ask for

  int num_ranks() const { return tensor_size * num_stages; }
  int num_threads() const;
};

// Answers have the same bits for every number of ranks, so the machine decides: as many ranks share
// a layer as are asked for, but not more than there are NUMA nodes, and layers are not divided;
// with `exact_ranks` all as asked. Where there are several nodes, each rank has the cores of one.
// The ranks divide `num_threads`, and have one each at least. On devices (`device_name` is not "")
// there are as many ranks as are asked for, with a device each.
//
// kInvalidArgument for sizes that are out of range.
Result<RankPlan> PlanRanks(const EngineConfig& config, const Topology& topology, int num_threads,
                           const std::string& device_name);

// The threads, by rank, of one of several engines that divide those of `ranks`; a rank has one at
// least. No other engine has more than the last one.
std::vector<RankThreads> ThreadsOfEngine(const RankPlan& ranks, int engine, int num_engines);

}  // namespace sluice
