// Loads new weights while the old ones stay in use. Used by EngineLoop::Loader.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "engine/engine_loop.h"
#include "engine/engine_plan.h"
#include "models/model.h"
#include "models/weight_stage.h"

namespace sluice {

// Loads weights for all engines of a process, which share them. All engines ask for the same
// folder, the first engine before the other ones. Thread safety: one thread at a time.
class WeightLoads {
 public:
  // `plan`: the plan of the engines. `ranks_here`: processes on this machine that load at the same
  // time.
  WeightLoads(EnginePlan plan, ModelConfig model, int ranks_here = 1);

  // Returns a model of one rank on the CPU, with its own threads. If there are several engines, the
  // first engine's call loads the weights, and the models of the other engines share them.
  Result<std::unique_ptr<Model>> LoadModel(int engine, const std::filesystem::path& folder);
  // Stages the weights in `folder` on all ranks of the engine. The first engine's call loads them;
  // the other engines share them.
  Status Stage(int engine, WeightStage& own, const std::filesystem::path& folder);

  // Sets the functions of `loader` that call `loads` for one engine.
  static void AddTo(EngineLoop::Loader& loader, const std::shared_ptr<WeightLoads>& loads,
                    int engine);

 private:
  // Returns kResourceExhausted if there is no memory for the new weights in addition to the old
  // ones.
  Status CheckRoom() const;

  const EnginePlan plan_;
  const ModelConfig model_;
  const int ranks_here_;
  std::vector<std::unique_ptr<Model>> others_;  // models of the engines after the first, by engine
  WeightStage* first_ = nullptr;
};

}  // namespace sluice
