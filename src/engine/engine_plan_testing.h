// For tests: plans of a small model on a small machine.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "engine/engine_plan.h"

namespace sluice::plan_testing {

inline constexpr int64_t kMiB = int64_t{1} << 20;

// 100 MiB of weights, 10 MiB of workspace, 1 MiB per block of 16 tokens, and 1 MiB per recorded
// step.
inline Result<ModelMemory> Sizes(const ModelConfig&, const ModelOptions& options, int) {
  return ModelMemory{.weight_bytes = 100 * kMiB,
                     .workspace_bytes = 10 * kMiB,
                     .graph_bytes = std::ssize(options.recorded.sequences) * kMiB,
                     .kv_bytes_per_group_block = kMiB};
}

struct Machine {
  int64_t total = 4000 * kMiB;
  int64_t available = 2000 * kMiB;
};

inline Result<EnginePlan> Plan(const EngineConfig& config, Machine machine = {},
                               int64_t positions = 131072,
                               std::optional<PoolingConfig> pooling = std::nullopt) {
  ModelConfig model;
  model.vocab_size = 256;
  model.max_position_embeddings = positions;
  MemoryLimits memory;
  memory.total_bytes = machine.total;
  memory.available_bytes = machine.available;
  Topology topology;
  topology.logical_cpus = 4;
  topology.core_cpus = {0, 2};
  return PlanEngine(config, model, memory, topology, Sizes, nullptr, {}, std::move(pooling));
}

}  // namespace sluice::plan_testing
