// Loads new weights while the old ones stay in use, for EngineLoop::Loader.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "engine/engine_loop.h"
#include "engine/engine_plan.h"
#include "models/model.h"
#include "models/weight_stage.h"

namespace sluice {

// For all engines of a process, which share weights. Each engine asks for the same folder, the
// first engine first. Thread safety: one thread at a time.
class WeightLoads {
 public:
  // `plan`: of the engines. `ranks_here`: processes on this machine that load at the same time.
  WeightLoads(EnginePlan plan, ModelConfig model, int ranks_here = 1);

  // A model of one rank on the CPU, with its own threads. Of several engines, the first one's call
  // loads the weights, and the others' share them.
  Result<std::unique_ptr<Model>> LoadModel(int engine, const std::filesystem::path& folder);
  // Must be the same on all ranks of an engine.
  Status Stage(int engine, WeightStage& own, const std::filesystem::path& folder);

  // Functions of `loads` for an engine.
  static void AddTo(EngineLoop::Loader& loader, const std::shared_ptr<WeightLoads>& loads,
                    int engine);

 private:
  // kResourceExhausted if there is no memory for the new weights in addition to the old ones.
  Status CheckRoom() const;

  const EnginePlan plan_;
  const ModelConfig model_;
  const int ranks_here_;
  std::vector<std::unique_ptr<Model>> others_;  // of engines after the first, by number
  WeightStage* first_ = nullptr;
};

}  // namespace sluice
