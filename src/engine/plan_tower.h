// Plans images: whether the engine takes them, the memory of the tower and of the rows that it
// makes, and what a step has to hold.
#pragma once

#include <string>

#include "engine/engine_plan.h"

namespace sluice {

// The tower of the model in EngineConfig::model_folder, if config.json describes one that is
// implemented and the checkpoint holds it; else why prompts hold no images.
ResolvedTower ResolveTower(const EngineConfig& config, const ModelConfig& model);

// Decides whether images are taken, and raises the limits of a step to what one of them needs where
// its tokens see each other. REQUIRES: ranks and the limits of a step are planned.
void PlanImages(const ResolvedTower& resolved, EnginePlan& plan);

// Decides whether prompts are taken as rows (Request::rows). REQUIRES: as for PlanImages, which was
// called.
void PlanPromptRows(const ModelConfig& model, EnginePlan& plan);

// Adds the bytes of the tower to those of the model. REQUIRES: plan.max_model_len is known.
void PlanTowerBytes(const ModelConfig& model, int num_threads, EnginePlan& plan);

}  // namespace sluice
