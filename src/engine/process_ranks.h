// An engine whose model is computed by several processes: what they agree on, and what those do
// that are not rank 0.
#pragma once

#include "engine/engine_plan.h"
#include "models/process_model.h"
#include "parallel/communicator.h"

namespace sluice {

// The processes of a model, and this one among them.
struct ProcessRanks {
  Communicator* all = nullptr;  // outlives the engine
  int tensor_size = 1;
  int num_stages = 1;
  int here = 1;  // ranks on this machine, which share its memory and its cores

  RankPlace place() const { return RankPlace::Of(all->rank(), tensor_size, num_stages); }
};

// Collective: plans each rank's share of the model in its part of its machine, and cuts the steps
// and the cache to what the least of them can hold; the same on all ranks but for the bytes. The
// error of a rank, with its number, is the error of all. `pooling`: of ResolvePooling.
Result<EnginePlan> PlanTogether(const ProcessRanks& ranks, const EngineConfig& config,
                                const ModelConfig& model,
                                const std::optional<PoolingConfig>& pooling);

// This rank's share under the plan; collective. `pool` outlives it.
Result<std::unique_ptr<RankProcessModel>> LoadProcess(const ProcessRanks& ranks, ThreadPool& pool,
                                                      const EnginePlan& plan,
                                                      const ModelConfig& model,
                                                      const LoadProgress& progress = {});

// What a rank other than 0 does: plans and loads with the others, then computes steps until rank 0
// ends. Throws GroupError.
Status RunProcessRank(const ProcessRanks& ranks, const EngineConfig& config);

}  // namespace sluice
