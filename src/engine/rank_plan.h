// Plans how many ranks compute a model on this machine's CPUs or devices, and with which threads.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine_config.h"
#include "hardware/topology.h"
#include "models/parallel_model.h"

namespace sluice {

struct RankPlan {
  int tensor_size = 1;                      // number of ranks that divide each layer
  int num_stages = 1;                       // number of groups of consecutive layers
  std::vector<RankThreads> threads = {{}};  // threads of each rank
  std::string note;                         // describes the plan if several ranks were requested
  bool fewer = false;                       // whether there are fewer ranks than requested

  int num_ranks() const { return tensor_size * num_stages; }
  int num_threads() const;
};

// Plans ranks and their threads. Without `exact_ranks`, tensor_size is the requested size, but at
// most the number of NUMA nodes, and there is one stage. Answers have the same bits for any number
// of ranks. With `exact_ranks`, the sizes are as requested. With several NUMA nodes and ranks, each
// rank gets the cores of one node. `num_threads` is divided among the ranks, at least one each. On
// devices (`device_name` is not ""): the sizes as requested, one device per rank.
//
// kInvalidArgument if a size is out of range.
Result<RankPlan> PlanRanks(const EngineConfig& config, const Topology& topology, int num_threads,
                           const std::string& device_name);

// Returns the number of threads of each rank for one of several engines. The engines divide the
// threads of `ranks`; each engine has at least one thread per rank. The last engine has the most
// threads.
std::vector<RankThreads> ThreadsOfEngine(const RankPlan& ranks, int engine, int num_engines);

}  // namespace sluice
