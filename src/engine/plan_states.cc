#include "engine/plan_states.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/plan_text.h"

namespace sluice {

Status CheckStates(const EnginePlan& plan) {
  if (plan.state_bytes_per_slot == 0) return {};
  if (!std::ranges::all_of(plan.scheduler.groups, &AttentionSpan::sees_all)) {
    return Fail(
        ErrorCode::kUnsupported,
        "models with both recurrent layers and layers with a window or chunks are not served",
        "model");
  }
  return {};
}

Status PlanStates(int64_t& budget, EnginePlan& plan) {
  const int64_t bytes = plan.state_bytes_per_slot;
  if (bytes == 0) return {};
  const EngineConfig& config = plan.config;
  SchedulerLimits& scheduler = plan.scheduler;
  int64_t for_snapshots = 0;
  if (config.enable_prefix_caching)
    for_snapshots = config.state_cache_bytes.value_or(std::max<int64_t>(0, budget) / 4);
  const int64_t for_running = std::max<int64_t>(0, budget) / 2;
  if (for_running < bytes) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("the states of one sequence take {}, but only {} are available for all "
                            "sequences: half of the caches' memory; raise "
                            "kv_cache_memory_bytes",
                            MemoryText(bytes), MemoryText(for_running)),
                "kv_cache_memory_bytes");
  }
  const int64_t most_running = for_running / bytes;
  if (scheduler.max_num_seqs > most_running) {
    scheduler.max_num_seqs = most_running;
    (config.max_num_seqs ? plan.warnings : plan.notes)
        .push_back(fmt::format("max_num_seqs is {}: the states of each sequence take {}, and all "
                               "states together may take at most half of the caches' memory",
                               most_running, MemoryText(bytes)));
  }
  constexpr int64_t kMostSnapshotsEach = 4;
  int64_t snapshots = for_snapshots / bytes;
  if (!config.state_cache_bytes)
    snapshots = std::min(snapshots, kMostSnapshotsEach * scheduler.max_num_seqs);
  if (config.enable_prefix_caching && snapshots == 0) {
    plan.warnings.push_back(
        fmt::format("prefix caching will find few prefixes: a snapshot of a sequence's states "
                    "takes {}, and only {} are available for snapshots; raise --state-cache-memory",
                    MemoryText(bytes), MemoryText(for_snapshots)));
  }
  constexpr int64_t kMostProposedStates = 32;
  // Number of state slots for the states after each draft token. They are in use until the step
  // shows which tokens are accepted.
  int64_t proposed = 0;
  if (config.speculates()) {
    const int64_t rest = budget - (scheduler.max_num_seqs + snapshots) * bytes;
    const int64_t most = std::min(scheduler.max_proposed_tokens, kMostProposedStates);
    proposed = std::clamp<int64_t>(rest / 2 / bytes, 0, most);
    if (proposed == 0) {
      plan.warnings.push_back(fmt::format(
          "speculative_config: nothing is proposed: the states after a proposed token take {}, for "
          "which no memory is left; raise kv_cache_memory_bytes or lower max_num_seqs",
          MemoryText(bytes)));
    }
  }
  plan.num_state_slots = scheduler.max_num_seqs + snapshots + proposed;
  plan.state_bytes = plan.num_engines * plan.num_state_slots * bytes;
  scheduler.snapshot_interval = (config.state_snapshot_interval + config.block_size - 1) /
                                config.block_size * config.block_size;
  budget -= plan.num_state_slots * bytes;
  return {};
}

}  // namespace sluice
