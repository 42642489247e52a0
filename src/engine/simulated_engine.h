// An engine without weights, whose steps take the time that a simulated device would take.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/engine_loop.h"
#include "engine/engine_plan.h"

namespace sluice {

// "H200x8": what EngineConfig::simulation simulates; "" if it simulates nothing.
std::string SimulatedName(const SimulationConfig& simulation);

// kInvalidArgument or kUnsupported for settings that a simulation cannot have.
Status CheckSimulation(const EngineConfig& config, const std::optional<PoolingConfig>& pooling,
                       bool are_processes);

// The plan of an engine on the simulated devices, as PlanEngine makes it for real ones: blocks of
// the cache are what the memory of a device leaves. Models for which this program has no kernels on
// devices are planned as on a CPU, with a note.
Result<EnginePlan> PlanSimulated(const EngineConfig& config, const ModelConfig& model);

// Sets what the engine tells of its device.
void DescribeSimulation(const SimulationConfig& simulation, EngineInfo& info);

// Adds the simulated model, and a cache without memory.
Status LoadSimulated(const EnginePlan& plan, const ModelConfig& model,
                     const std::vector<int32_t>& end_tokens, EngineLoop::Parts& parts);

}  // namespace sluice
