// An engine whose model is computed by several processes: planning together, and the work of ranks
// other than 0.
#pragma once

#include "engine/engine_plan.h"
#include "models/process_model.h"
#include "parallel/communicator.h"

namespace sluice {

// The processes that compute a model, as seen from this process.
struct ProcessRanks {
  Communicator* all = nullptr;  // outlives the engine
  int tensor_size = 1;
  int num_stages = 1;
  int here = 1;  // number of ranks on this machine, which share its memory and cores

  RankPlace place() const { return RankPlace::Of(all->rank(), tensor_size, num_stages); }
};

// Collective. Plans each rank's share of the model within the rank's share of its machine. Reduces
// step limits and cache to the sizes that the smallest rank can hold. The plan is the same on all
// ranks except for sizes in bytes. If a rank fails, all ranks return its error, with its number.
// `pooling`: from ResolvePooling. `tower`: from ResolveTower; only rank 0 loads it, but all ranks
// reserve its memory.
Result<EnginePlan> PlanTogether(const ProcessRanks& ranks, const EngineConfig& config,
                                const ModelConfig& model,
                                const std::optional<PoolingConfig>& pooling,
                                const ResolvedTower& tower);

// Collective: loads this rank's share under the plan. `pool` outlives it.
Result<std::unique_ptr<RankProcessModel>> LoadProcess(const ProcessRanks& ranks, ThreadPool& pool,
                                                      const EnginePlan& plan,
                                                      const ModelConfig& model,
                                                      const LoadProgress& progress = {});

// Runs a rank other than 0: plans and loads with the others, then computes steps until rank 0 ends.
// Throws GroupError.
Status RunProcessRank(const ProcessRanks& ranks, const EngineConfig& config);

}  // namespace sluice
