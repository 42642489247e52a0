// Plans an engine before anything is allocated: types, limits of a step, and use of memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "engine/draft_plan.h"
#include "engine/engine_config.h"
#include "engine/pooling_config.h"
#include "engine/rank_plan.h"
#include "hardware/memory.h"
#include "hardware/topology.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/tower/image_tower.h"
#include "scheduler/scheduler.h"

namespace sluice {

// Result of plan_tower.h for a model.
struct ResolvedTower {
  std::optional<TowerSpec> spec;
  std::string reason = "the model has no image tower";  // why there is no tower
  // Maximum number of tokens of an image that attend to each other; 0: none do.
  int64_t whole_rows = 0;
};

// The resolved configuration, and all values derived from it, the model and the machine. Complete
// once PlanEngine has returned. Read by the loader, the engine's loop and its core.
struct EnginePlan {
  EngineConfig config;
  std::optional<PoolingConfig> pooling;

  ElementType dtype = ElementType::kBF16;    // inputs of matrix products: BF16 or F32
  ElementType kv_type = ElementType::kBF16;  // type of the cache: BF16, F16, F32 or F8_E4M3
  int num_threads = 1;                       // of all ranks together
  RankPlan ranks;
  int num_engines = 1;  // number of engines; they divide the ranks' threads
  LoraOptions lora;
  std::optional<DraftPlan> draft;
  int64_t max_model_len = 0;
  SchedulerLimits scheduler;
  RecordedSteps recorded;             // step sizes that a device captures as graphs
  std::shared_ptr<OpTimes> op_times;  // null: operators are not timed
  int64_t num_blocks = 0;             // per engine
  // Number of slots for recurrent states per engine: max_num_seqs, plus those of snapshots. 0: the
  // model keeps no states.
  int64_t num_state_slots = 0;

  // Images: the tower and the number of image rows that each engine stores. If there is no tower,
  // why.
  std::optional<TowerSpec> tower;
  TowerOptions tower_options;
  std::string no_images;
  int64_t image_rows = 0;
  // With a device: whether it computes the tower's layers and, if not, why.
  bool tower_on_device = false;
  std::string tower_on_cpu;
  // Why prompts may not be rows (Request::rows); "": they may be.
  std::string no_prompt_rows;

  int64_t weight_bytes = 0;
  int64_t token_weight_bytes = 0;  // as in ModelMemory
  // Activations, logits and sampling; total of all engines, like the cache.
  int64_t workspace_bytes = 0;
  // Bytes of the layers after pooling, part of weight_bytes; with a device, they are in host memory
  // and include their workspace.
  int64_t dense_bytes = 0;
  int64_t tower_bytes = 0;    // with a device: the part of the tower that is in host memory
  int64_t adapter_bytes = 0;  // bytes of the slots of LoRA adapters
  // Bytes of the tiers in memory, total of all engines; with a device: in host memory.
  int64_t tier_bytes = 0;
  int64_t graph_bytes = 0;  // estimate for captured graphs; the driver allocates this memory
  int64_t kv_bytes = 0;
  int64_t state_bytes = 0;           // bytes of the state slots of all engines
  int64_t state_bytes_per_slot = 0;  // as in ModelMemory
  int64_t request_bytes = 0;         // bytes that requests may take in host memory
  int64_t kv_bytes_per_block = 0;    // bytes of a block for the layers of one group
  KvGroups kv_groups;
  MemoryLimits memory;      // the device's, if there is a device; else the machine's
  std::string device_name;  // "" for the CPU
  DeviceInfo device;        // unless device_name is ""

  std::vector<std::string> notes;     // choices that the user should know about, one line each
  std::vector<std::string> warnings;  // options that are not fully applied, one line each

  // Bytes of a block and of a state slot in the tiers, over all ranks.
  int64_t tier_block_bytes = 0, tier_state_bytes = 0;
  int tensor_ranks = 1, pipeline_stages = 1;  // numbers for the model, counted over all processes

  int64_t max_logit_rows() const {
    return scheduler.max_num_seqs + scheduler.max_prompt_logit_rows + scheduler.max_proposed_tokens;
  }
  // Number of tokens that the cache of an engine holds in sequences of max_model_len.
  int64_t kv_tokens() const;
  // With a device: bytes of host memory, except those of requests.
  int64_t host_bytes() const;
  // Bytes of everything except the cache; with a device that shares the host's memory, host_bytes
  // too.
  int64_t fixed_bytes() const;
  int64_t total_bytes() const {
    return fixed_bytes() + kv_bytes + state_bytes + (draft ? draft->kv_bytes : 0);
  }
  // Bytes taken from `memory`. With a device, requests use host memory instead.
  int64_t taken_bytes() const { return total_bytes() + (on_device() ? 0 : request_bytes); }
  bool on_device() const { return !device_name.empty(); }
};

using PlanModelFunction =
    std::function<Result<ModelMemory>(const ModelConfig&, const ModelOptions&, int num_threads)>;

// The rules:
//   By default, max_num_seqs is 256 and max_num_batched_tokens is 2048. On devices of 70 GiB and
//     more they are 1024 and 8192; on devices of 160 GiB and more max_num_batched_tokens is 16384.
//     max_num_seqs never exceeds max_num_batched_tokens. Without chunked prefill, a step has room
//     for a whole context.
//   The KV cache is FP8 if the checkpoint specifies it, unless kv_cache_dtype names another type.
//   On a
//     CPU, a 16-bit cache of a model with experts is float16.
//   The cache gets the size that EngineConfig sets, but never more than max_num_seqs sequences of
//     max_model_len can fill, and never more than the free memory. On a device, `memory` is the
//     device's: the requested fraction must be free, and products and a 16-bit cache are bfloat16.
//   A memory budget in EngineConfig replaces the free memory.
//   Requests get the size that EngineConfig sets, or half of the remaining memory: at least a
//     sixteenth of the free memory (but not more than 64 MiB), and at most 1 GiB. `host`: the
//     memory of a device's machine.
//   max_model_len is the checkpoint's limit or, if the cache holds less, what the cache holds.
//   Several engines share the weights. The cache of each engine is an equal part of the cache that
//     a single engine would get.
//   LoRA adapters are for decoders. The number of slots is max_cpu_loras (on a device max_loras).
//     Without that option, it is the larger of max_loras and the number of adapters given at the
//     start. Each rank holds a part of every adapter; engines share adapters.
//   A draft model requires a decoder on a CPU. It has the target's vocabulary and is not divided
//   among ranks. Its cache gets a part of the memory for caches, in proportion to its bytes per
//   token. It never gets more than the sequences of one proposing step can fill.
//   Encoders run on one rank. Pooling by the mean takes the results of all rows of a step.
// kInvalidArgument for options that contradict each other or are out of range; kResourceExhausted,
// with the option that would help, if the weights exceed the memory or if one sequence of a
// configured max_model_len does not fit. `draft`: the model of config.draft, if there is one.
Result<EnginePlan> PlanEngine(const EngineConfig& config, const ModelConfig& model,
                              const MemoryLimits& memory, const Topology& topology,
                              const PlanModelFunction& plan_model,
                              const DeviceInfo* device = nullptr, const MemoryLimits& host = {},
                              std::optional<PoolingConfig> pooling = std::nullopt,
                              const ModelConfig* draft = nullptr, const ResolvedTower& tower = {},
                              std::shared_ptr<const DrafterSpec> head = nullptr);

// The options for loading the model under the plan.
ModelOptions ModelOptionsOf(const EnginePlan& plan);

// The plan as a table, a line each.
std::vector<std::string> MemoryTable(const EnginePlan& plan);

}  // namespace sluice
