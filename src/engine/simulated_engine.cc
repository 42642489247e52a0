#include "engine/simulated_engine.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "hardware/memory.h"
#include "hardware/topology.h"
#include "models/kv_layout.h"
#include "models/parallel_model.h"
#include "simulation/simulated_model.h"
#include "simulation/step_clock.h"

namespace sluice {
namespace {

// Device memory that the driver's context takes before anything is loaded.
constexpr int64_t kContextBytes = int64_t{512} << 20;

// The largest memory use of any rank, planned as on a CPU.
Result<ModelMemory> LargestShare(const ModelConfig& config, const ModelOptions& options,
                                 int num_threads, int tensor_size, int num_stages) {
  ModelMemory most;
  for (int rank = 0; rank < tensor_size * num_stages; ++rank) {
    ASSIGN_OR_RETURN(
        const ModelMemory share,
        PlanShare(config, options, num_threads, RankPlace::Of(rank, tensor_size, num_stages)));
    if (rank == 0 || share.weight_bytes > most.weight_bytes) most = share;
  }
  return most;
}

}  // namespace

std::string SimulatedName(const SimulationConfig& simulation) {
  if (!simulation.is_given()) return "";
  return simulation.count == 1 ? simulation.device->name
                               : fmt::format("{}x{}", simulation.device->name, simulation.count);
}

Status CheckSimulation(const EngineConfig& config, const std::optional<PoolingConfig>& pooling,
                       bool are_processes) {
  const auto refuse = [](std::string_view what) {
    return Fail(ErrorCode::kUnsupported, fmt::format("--simulate: {}", what), "simulate");
  };
  if (pooling)
    return refuse("only models that generate text can be simulated; this is a pooling model");
  if (are_processes) return refuse("ranks are not processes here: omit the launcher");
  if (config.data_parallel_size > 1 && config.adapters.enabled) {
    return refuse("several engines have no adapters: omit --data-parallel-size or --enable-lora");
  }
  if (config.draft.is_given())
    return refuse("draft models are not simulated: omit --speculative-config");
  if (config.enable_sleep_mode || config.enable_weight_updates) {
    return refuse(
        "there are no weights to release or replace: omit --enable-sleep-mode and "
        "--weight-transfer-config");
  }
  if (config.offload.is_given())
    return refuse("blocks have no content: omit --kv-offloading-size and --kv-offloading-path");
  const SimulationConfig& simulation = config.simulation;
  const int64_t ranks = int64_t{config.tensor_parallel_size} * config.pipeline_parallel_size *
                        config.data_parallel_size;
  if (ranks > simulation.count) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--simulate {}: tensor_parallel_size {} times pipeline_parallel_size "
                            "{} times data_parallel_size {} make {} ranks, each of which needs a "
                            "device; use {}x{}, or lower them",
                            SimulatedName(simulation), config.tensor_parallel_size,
                            config.pipeline_parallel_size, config.data_parallel_size, ranks,
                            simulation.device->name, ranks),
                "simulate");
  }
  if (simulation.device->is_cpu && ranks > 1)
    return refuse("a simulated CPU has one rank: omit -tp and -pp");
  return {};
}

Result<EnginePlan> PlanSimulated(const EngineConfig& config, const ModelConfig& model) {
  const DeviceProfile& device = *config.simulation.device;
  const DeviceInfo info = device.Info();
  MemoryLimits memory;
  memory.total_bytes = device.memory_bytes;
  memory.available_bytes = device.memory_bytes - device.system_bytes - kContextBytes;
  if (memory.available_bytes <= 0) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("--simulate {}: its memory of {} bytes leaves nothing for a model",
                            device.name, device.memory_bytes),
                "simulate");
  }
  // Memory that the system reserves on a device can never be requested.
  memory.total_bytes -= device.system_bytes;
  if (config.memory_budget_bytes) {
    memory.total_bytes = std::min(memory.total_bytes, *config.memory_budget_bytes);
    memory.available_bytes = std::min(memory.available_bytes, memory.total_bytes);
  }
  std::string note;
  const auto plan_model = [&](const ModelConfig& shape, const ModelOptions& options,
                              int threads) -> Result<ModelMemory> {
    if (device.is_cpu) return PlanModel(shape, options, threads);
    auto planned = PlanDeviceRanks(shape, options, info, config.tensor_parallel_size,
                                   config.pipeline_parallel_size);
    if (planned || planned.error().code != ErrorCode::kUnsupported) return planned;
    note = fmt::format("simulated as if every kernel existed ({})", planned.error().message);
    return LargestShare(shape, options, threads, config.tensor_parallel_size,
                        config.pipeline_parallel_size);
  };
  EngineConfig asked = config;
  asked.exact_ranks = true;
  asked.graphs = {};
  // Each engine has its own devices, and therefore its own weights and cache.
  asked.data_parallel_size = 1;
  ResolvedTower tower;
  tower.reason = "images are not simulated";
  ASSIGN_OR_RETURN(EnginePlan plan, PlanEngine(asked, model, memory, DetectTopology(), plan_model,
                                               device.is_cpu ? nullptr : &info, ReadMemoryLimits(),
                                               std::nullopt, nullptr, tower, nullptr));
  if (!note.empty()) plan.notes.push_back(note);
  plan.config.data_parallel_size = plan.num_engines = config.data_parallel_size;
  plan.weight_bytes *= plan.num_engines;
  plan.kv_bytes *= plan.num_engines;
  plan.no_prompt_rows = "prompt embeddings are not simulated";
  // Simulated steps run in the order of arrival; a pipeline's clock adds the times of its stages.
  plan.scheduler.num_stages = plan.scheduler.steps_in_flight = 1;
  return plan;
}

void DescribeSimulation(const SimulationConfig& simulation, EngineInfo& info) {
  info.simulated = SimulatedName(simulation);
  info.isa = "simulated " + simulation.device->name;
  if (!simulation.device->is_cpu) info.device = DeviceKind::kCuda;
}

Status LoadSimulated(const EnginePlan& plan, const ModelConfig& model,
                     const std::vector<int32_t>& end_tokens, EngineLoop::Parts& parts) {
  const SimulationConfig& simulation = plan.config.simulation;
  ASSIGN_OR_RETURN(StepCosts costs,
                   StepCostsOf(model, ModelOptionsOf(plan), plan.config.tensor_parallel_size,
                               plan.config.pipeline_parallel_size));
  ASSIGN_OR_RETURN(parts.model,
                   SimulatedModel::Create(model, StepClock(*simulation.device, std::move(costs)),
                                          {.speed = simulation.speed,
                                           .mean_output = simulation.mean_output,
                                           .end_tokens = end_tokens,
                                           .lora = plan.lora}));
  // Nothing reads the blocks, so the address is a dummy.
  constexpr uintptr_t kNowhere = 4096;
  parts.cache = std::make_unique<KvCache>(KvCache::Wrap(KvLayoutOf(model, ModelOptionsOf(plan)),
                                                        plan.kv_groups, plan.num_blocks,
                                                        std::bit_cast<void*>(kNowhere)));
  return {};
}

}  // namespace sluice
