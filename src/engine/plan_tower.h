// Plans images: whether the engine accepts them, the memory of the tower and its rows, and the size
// of a step.
#pragma once

#include <string>

#include "engine/engine_plan.h"

namespace sluice {

// Returns the tower of the model in EngineConfig::model_folder, if config.json describes a
// supported one and the checkpoint holds it; else the reason why prompts may not hold images.
ResolvedTower ResolveTower(const EngineConfig& config, const ModelConfig& model);

// Decides whether images are accepted. If tokens of an image attend to each other, raises the
// limits of a step so that one image fits. REQUIRES: ranks and limits of a step are planned.
void PlanImages(const ResolvedTower& resolved, EnginePlan& plan);

// Decides whether prompts may be rows (Request::rows). REQUIRES: PlanImages was called.
void PlanPromptRows(const ModelConfig& model, EnginePlan& plan);

// Sets the number of rows of images that an engine stores. REQUIRES: plan.max_model_len is known.
void PlanImageRows(EnginePlan& plan);

// Adds the tower's bytes to the model's. REQUIRES: PlanImageRows was called.
void PlanTowerBytes(const ModelConfig& model, int num_threads, EnginePlan& plan);

}  // namespace sluice
