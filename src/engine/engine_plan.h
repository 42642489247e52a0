// Plans an engine before anything is allocated: types, limits of a step, and the division of
// memory.
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

// What plan_tower.h finds of a model's images.
struct ResolvedTower {
  std::optional<TowerSpec> spec;
  std::string reason = "the model has no image tower";  // where there is none
  int64_t whole_rows = 0;  // tokens of an image that see each other, at most; 0: none do
};

// The configuration, and what was derived from it, the model and the machine. Complete once
// PlanEngine has returned; the loader, the engine's loop and its core read it.
struct EnginePlan {
  EngineConfig config;
  std::optional<PoolingConfig> pooling;

  ElementType dtype = ElementType::kBF16;    // of products: BF16 or F32
  ElementType kv_type = ElementType::kBF16;  // of the cache: BF16, F16, F32 or F8_E4M3
  int num_threads = 1;                       // of all ranks
  RankPlan ranks;
  int num_engines = 1;  // that divide the threads of the ranks
  LoraOptions lora;
  std::optional<DraftPlan> draft;
  int64_t max_model_len = 0;
  SchedulerLimits scheduler;
  RecordedSteps recorded;             // of a device
  std::shared_ptr<OpTimes> op_times;  // null: the time of operators is not counted
  int64_t num_blocks = 0;             // of each engine
  // Slots for the states of sequences that each engine has: max_num_seqs, and those of snapshots.
  // 0: the model keeps no states.
  int64_t num_state_slots = 0;

  // Images: none, and why prompts hold none; or the tower, and how many rows of images each engine
  // keeps.
  std::optional<TowerSpec> tower;
  TowerOptions tower_options;
  std::string no_images;
  int64_t image_rows = 0;
  // Why prompts are not taken as rows (Request::rows); "": they are.
  std::string no_prompt_rows;

  int64_t weight_bytes = 0;
  int64_t token_weight_bytes = 0;  // as in ModelMemory
  int64_t workspace_bytes = 0;     // activations, logits, sampling; of all engines, as the cache's
  int64_t dense_bytes = 0;         // of the layers after pooling, part of the weights; beside a
                                   // device with their workspace, in the memory of the machine
  int64_t adapter_bytes = 0;       // of the slots of LoRA adapters
  int64_t tier_bytes = 0;          // of what has left the cache, of all engines
  int64_t graph_bytes = 0;         // about, of recorded steps; the driver allocates it
  int64_t kv_bytes = 0;
  int64_t state_bytes = 0;           // of the slots of all engines
  int64_t state_bytes_per_slot = 0;  // as in ModelMemory
  int64_t request_bytes = 0;         // that requests may hold, in the memory of the machine
  int64_t kv_bytes_per_block = 0;    // of one group's layers
  KvGroups kv_groups;
  MemoryLimits memory;      // of the device where there is one
  std::string device_name;  // "" for the CPU

  std::vector<std::string> notes;     // choices that the user should know of, one line each
  std::vector<std::string> warnings;  // where less acts than was asked for, one line each

  int64_t max_logit_rows() const {
    return scheduler.max_num_seqs + scheduler.max_prompt_logit_rows + scheduler.max_proposed_tokens;
  }
  // Tokens that the cache of an engine holds in sequences of max_model_len.
  int64_t kv_tokens() const;
  // What is taken besides the cache.
  int64_t fixed_bytes() const {
    return weight_bytes + workspace_bytes + adapter_bytes + graph_bytes + tier_bytes +
           (draft ? draft->weight_bytes + draft->workspace_bytes : 0);
  }
  int64_t total_bytes() const {
    return fixed_bytes() + kv_bytes + state_bytes + (draft ? draft->kv_bytes : 0);
  }
  // Everything that is taken from `memory`; requests are in the memory of the machine.
  int64_t taken_bytes() const { return total_bytes() + (on_device() ? 0 : request_bytes); }
  bool on_device() const { return !device_name.empty(); }
};

using PlanModelFunction =
    std::function<Result<ModelMemory>(const ModelConfig&, const ModelOptions&, int num_threads)>;

// The rules:
//   max_num_seqs is 256 and max_num_batched_tokens 2048 by default (on devices of 70 GiB and more
//     1024 and 8192, of 160 GiB 16384); the former never exceeds the latter. Without chunked
//     prefill a step holds a whole context.
//   The KV cache is FP8 where the checkpoint says so, unless kv_cache_dtype names another type. 16
//     bits are float16 in a model with experts.
//   The cache takes what EngineConfig says, but never more than max_num_seqs sequences of
//     max_model_len can fill, nor than is free. On a device, whose memory `memory` then describes,
//     the fraction that is asked for must be free; computing and the cache's 16 bits are bfloat16.
//   A memory budget of EngineConfig takes the place of what is free.
//   Requests get what EngineConfig says, or half of what is left, between a sixteenth of what is
//     free (at most 64 MiB) and 1 GiB. `host`: the machine beside a device.
//   max_model_len is what the checkpoint allows or, where that is more than the cache holds, the
//     latter.
//   Several engines share the weights; the cache of each takes its part of what one would, or what
//     the options set outright.
//   LoRA adapters are of decoders. There is room for max_cpu_loras of them (on a device for
//     max_loras), or without that for as many as max_loras or are given at the start; ranks hold
//     parts of them, engines share them.
//   A draft model is of a CPU's decoders and has the vocabulary of the target; no rank has a part
//     of it. Of the memory for caches its own takes a part by the bytes of a token, but never more
//     than the sequences that it proposes for at a time can fill.
//   Pooling is of a CPU's models, an encoder of one rank; the mean is taken of the results of all
//     rows of a step.
// kInvalidArgument for options that contradict each other or are out of range; kResourceExhausted,
// with the option that would help, when weights exceed memory or one sequence of a given
// max_model_len does not fit. `draft`: the model of config.draft, if there is one.
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
