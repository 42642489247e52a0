#include "engine/process_ranks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/thread_limit.h"
#include "engine/kv_tiers.h"
#include "engine/plan_tower.h"
#include "hardware/memory.h"
#include "hardware/topology.h"
#include "kernels/dispatch.h"

namespace sluice {
namespace {

// The part of a rank's plan that it sends to the other ranks.
struct PlanOfRank {
  int64_t max_model_len = 0;
  int64_t max_num_seqs = 0;
  int64_t max_num_batched_tokens = 0;
  int64_t num_blocks = 0;
  int64_t num_state_slots = 0;
  ErrorCode code = ErrorCode::kInternal;
  std::array<char, 600> problem{};  // "" if planning succeeded
  std::array<char, 64> param{};
};

template <size_t n>
void CopyText(std::string_view text, std::array<char, n>& to) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), n - 1));
}

// Returns the part of a machine's memory that one of its ranks may use.
MemoryLimits PartOf(MemoryLimits memory, int ranks_here) {
  memory.total_bytes /= ranks_here;
  memory.available_bytes /= ranks_here;
  return memory;
}

Result<EnginePlan> PlanOwnShare(const ProcessRanks& ranks, EngineConfig config,
                                const ModelConfig& model,
                                const std::optional<PoolingConfig>& pooling,
                                const ResolvedTower& tower) {
  // Each process has a single rank.
  config.tensor_parallel_size = config.pipeline_parallel_size = 1;
  config.process_stages = ranks.num_stages;
  config.are_ranks_processes = true;
  config.exact_ranks = false;
  // Rank 0 holds the tiers' memory for the caches of all ranks; see PlanTogether.
  const OffloadConfig offload = std::exchange(config.offload, {});
  MemoryLimits memory = ReadMemoryLimits();
  if (offload.is_given())
    memory.available_bytes -= std::min(memory.available_bytes, MostTierBytes(offload, 1));
  const Topology topology = DetectTopology();
  if (config.num_threads == 0)
    config.num_threads = std::max(1, topology.DefaultThreads() / ranks.here);
  const auto plan_share = [&ranks](const ModelConfig& shape, const ModelOptions& options,
                                   int threads) {
    return PlanShare(shape, options, threads, ranks.place());
  };
  return PlanEngine(config, model, PartOf(memory, ranks.here), topology, plan_share,
                    /*device=*/nullptr, /*host=*/{}, pooling, /*draft=*/nullptr, tower);
}

std::vector<PlanOfRank> ExchangePlans(Communicator& all, const Result<EnginePlan>& plan) {
  PlanOfRank own;
  if (plan) {
    own.max_model_len = plan->max_model_len;
    own.max_num_seqs = plan->scheduler.max_num_seqs;
    own.max_num_batched_tokens = plan->scheduler.max_num_batched_tokens;
    own.num_blocks = plan->num_blocks;
    own.num_state_slots = plan->num_state_slots;
  } else {
    own.code = plan.error().code;
    CopyText(plan.error().message, own.problem);
    CopyText(plan.error().param, own.param);
  }
  ThreadPool pool(1);
  std::vector<PlanOfRank> plans(static_cast<size_t>(all.size()));
  const std::vector<int64_t> widths(plans.size(), sizeof(PlanOfRank));
  all.Gather(pool, widths, 1, &own, plans.data());
  return plans;
}

int64_t Least(const std::vector<PlanOfRank>& plans, int64_t PlanOfRank::*number) {
  int64_t least = plans.front().*number;
  for (const PlanOfRank& plan : plans) least = std::min(least, plan.*number);
  return least;
}

Status CheckPlans(const std::vector<PlanOfRank>& plans) {
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    const PlanOfRank& plan = plans[rank];
    if (plan.problem[0] == '\0') continue;
    return Fail(plan.code, fmt::format("rank {}: {}", rank, plan.problem.data()),
                plan.param.data());
  }
  return {};
}

}  // namespace

Result<EnginePlan> PlanTogether(const ProcessRanks& ranks, const EngineConfig& config,
                                const ModelConfig& model,
                                const std::optional<PoolingConfig>& pooling,
                                const ResolvedTower& tower) {
  RETURN_IF_ERROR(CheckRanks(model.spec, ranks.tensor_size, ranks.num_stages));
  std::vector<PlanOfRank> plans =
      ExchangePlans(*ranks.all, PlanOwnShare(ranks, config, model, pooling, tower));
  RETURN_IF_ERROR(CheckPlans(plans));
  EngineConfig agreed = config;
  agreed.max_model_len = Least(plans, &PlanOfRank::max_model_len);
  agreed.max_num_seqs = Least(plans, &PlanOfRank::max_num_seqs);
  agreed.max_num_batched_tokens = Least(plans, &PlanOfRank::max_num_batched_tokens);
  Result<EnginePlan> plan = PlanOwnShare(ranks, agreed, model, pooling, tower);
  plans = ExchangePlans(*ranks.all, plan);
  RETURN_IF_ERROR(CheckPlans(plans));
  plan->num_blocks = Least(plans, &PlanOfRank::num_blocks);
  plan->kv_bytes = plan->num_blocks * plan->kv_bytes_per_block;
  plan->num_state_slots = Least(plans, &PlanOfRank::num_state_slots);
  plan->state_bytes = plan->num_state_slots * plan->state_bytes_per_slot;
  plan->config.offload = config.offload;
  plan->tensor_ranks = ranks.tensor_size;
  plan->pipeline_stages = ranks.num_stages;
  if (ranks.all->rank() > 0 || !config.offload.is_given()) return plan;
  plan->memory.available_bytes += MostTierBytes(config.offload, 1);
  if (Status planned = PlanTiers(model, /*host=*/{}, *plan); !planned)
    return tl::unexpected(std::move(planned).error());
  return plan;
}

Result<std::unique_ptr<RankProcessModel>> LoadProcess(const ProcessRanks& ranks, ThreadPool& pool,
                                                      const EnginePlan& plan,
                                                      const ModelConfig& model,
                                                      const LoadProgress& progress) {
  ParallelOptions parallel;
  parallel.tensor_size = ranks.tensor_size;
  parallel.num_stages = ranks.num_stages;
  parallel.kv_groups = plan.kv_groups;
  parallel.num_blocks = plan.num_blocks;
  parallel.moves_blocks = plan.config.offload.is_given();
  return RankProcessModel::Load(*ranks.all, pool, plan.config.model_folder, model,
                                ModelOptionsOf(plan), parallel, progress);
}

Status RunProcessRank(const ProcessRanks& ranks, const EngineConfig& config) {
  RETURN_IF_ERROR(kernels::SelectIsa(config.cpu_isa ? kernels::IsaName(*config.cpu_isa) : "auto"));
  ASSIGN_OR_RETURN(ModelConfig model, LoadModelConfig(config.model_folder, config.config_overrides,
                                                      config.load_quantization));
  ASSIGN_OR_RETURN(const std::optional<PoolingConfig> pooling,
                   ResolvePooling(config.pooling, config.model_folder, model));
  const ResolvedTower tower = ResolveTower(config, model);
  ASSIGN_OR_RETURN(const EnginePlan plan, PlanTogether(ranks, config, model, pooling, tower));
  try {
    ThreadPool pool(plan.num_threads);
    ASSIGN_OR_RETURN(const auto process, LoadProcess(ranks, pool, plan, model));
    process->Follow();
  } catch (const std::system_error& error) {
    const std::string problem = ThreadsRefused(fmt::format("{} threads", plan.num_threads),
                                               error.what(), "lower --threads");
    ranks.all->Fail(problem);
    return Fail(ErrorCode::kResourceExhausted, problem, "threads");
  }
  return {};
}

}  // namespace sluice
