// An engine without weights, whose steps take the time that a simulated device would take.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/engine_loop.h"
#include "engine/engine_plan.h"

namespace sluice {

// Returns what EngineConfig::simulation simulates, such as "H200x8"; "" if nothing is simulated.
std::string SimulatedName(const SimulationConfig& simulation);

// Returns kInvalidArgument or kUnsupported for settings that cannot be simulated.
Status CheckSimulation(const EngineConfig& config, const std::optional<PoolingConfig>& pooling,
                       bool are_processes);

// Plans an engine on the simulated devices, as PlanEngine does for real ones: the cache gets the
// device memory that weights and workspace leave. Models without device kernels in this program are
// planned as on a CPU, with a note.
Result<EnginePlan> PlanSimulated(const EngineConfig& config, const ModelConfig& model);

// Sets the members of EngineInfo that describe the device.
void DescribeSimulation(const SimulationConfig& simulation, EngineInfo& info);

// Adds the simulated model, and a cache that uses no memory.
Status LoadSimulated(const EnginePlan& plan, const ModelConfig& model,
                     const std::vector<int32_t>& end_tokens, EngineLoop::Parts& parts);

}  // namespace sluice
