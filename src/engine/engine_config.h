// What an engine is asked for: the resolved options of the command line, typed. The engine's
// defaults are here and nowhere else; where a field has no value, the plan (engine_plan.h) chooses
// it from the model and the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/json.h"
#include "checkpoint/scheme.h"
#include "engine/adapter_settings.h"
#include "engine/graph_plan.h"
#include "engine/offload_config.h"
#include "engine/pooling_config.h"
#include "engine/request.h"
#include "kernels/dispatch.h"
#include "models/model.h"
#include "scheduler/scheduler.h"
#include "speculation/draft_config.h"
#include "speculation/speculation_config.h"
#include "tensor/element_type.h"

namespace sluice {

// What --device asks for. kAuto: the first CUDA device where this program has the backend and the
// machine has a device, else the CPU.
enum class DeviceChoice { kAuto, kCpu, kCuda, kEmulated };

// Steps of a small machine; larger devices have larger ones (engine_plan.h).
inline constexpr int64_t kDefaultMaxNumSeqs = 256;
inline constexpr int64_t kDefaultMaxNumBatchedTokens = 2048;

// data_parallel_size at most.
inline constexpr int kMostEngines = 64;

// Bounds on the requests that the engine keeps, and on time.
struct LoopLimits {
  // C9: running requests may take this long to finish after BeginShutdown().
  double drain_seconds = 30;
  // healthy() is false when neither a step nor the queue has moved for so long while there is work.
  double watchdog_seconds = 300;
  // Requests that are waiting or running; more are answered kUnavailable. Likewise their sequences,
  // and their prompt tokens over all sequences, which bounds the memory of a long queue.
  int64_t max_unfinished = 16384;
  int64_t max_unfinished_sequences = 16 * int64_t{kMaxSequences};
  int64_t max_unfinished_tokens = int64_t{64} << 20;

  bool operator==(const LoopLimits&) const = default;
};

struct EngineConfig {
  std::filesystem::path model_folder;
  std::filesystem::path generation_config_folder;  // of generation_config.json; "": model_folder
  const std::filesystem::path& GenerationConfigFolder() const {
    return generation_config_folder.empty() ? model_folder : generation_config_folder;
  }

  json::Value config_overrides;  // of keys of config.json (OverrideConfig()); null: none
  LoadQuantization load_quantization;

  // False: prompts hold no images, whatever the model is.
  bool takes_images = true;
  PoolingOptions pooling;
  AdapterSettings adapters;

  // Types.
  std::optional<ElementType> dtype;           // BF16, F32, or F16, which runs as BF16
  std::optional<ElementType> kv_cache_dtype;  // BF16, F16, F32 or F8_E4M3
  ModelOptions::ActivationRounding activation_format = ModelOptions::ActivationRounding::kAuto;
  bool dummy_weights = false;    // --load-format dummy
  bool allow_nonfinite = false;  // weights that are NaN or infinite are loaded, with a warning
  uint64_t seed = 0;  // of dummy weights and of requests without a seed (0: random for the latter)

  // Steps and sequences.
  int block_size = 16;                            // tokens
  std::optional<int64_t> max_model_len;           // none: what checkpoint and memory allow
  std::optional<int64_t> max_num_seqs;            // none: by the machine
  std::optional<int64_t> max_num_batched_tokens;  // none: by the machine
  bool enable_prefix_caching = true;
  bool enable_chunked_prefill = true;
  SchedulingPolicy scheduling_policy = SchedulingPolicy::kFair;
  Ageing ageing{.level_us = 30'000'000, .max_levels = 10};
  int64_t long_prefill_token_threshold = 0;  // 0: off
  bool async_scheduling = false;             // of one device: a step is sent while one runs
  GraphConfig graphs;
  // At most one of them proposes tokens.
  SpeculationConfig speculation;
  DraftConfig draft;
  bool speculates() const {
    return draft.is_given() || speculation.method != SpeculationConfig::Method::kNone;
  }

  // Memory. On a CPU the cache takes a quarter of the free memory by default; with
  // `memory_utilization`, that fraction of the memory this process may use, less weights and
  // workspace. On a device weights, workspace and cache together take `memory_utilization` (0.92 by
  // default) of its memory; with `utilization_of_rest` the cache takes that fraction (0.9 by
  // default) of what weights and workspace leave. `kv_cache_bytes` and `num_blocks_override` set
  // the size of the cache outright.
  std::optional<double> memory_utilization;
  bool utilization_of_rest = false;  // TensorRT-LLM's meaning; applies to devices
  std::optional<int64_t> kv_cache_bytes;
  std::optional<int64_t> num_blocks_override;  // each of all layers
  // Where sequences keep states of recurrent layers: of the cache's memory, what snapshots of them
  // may take; none: plan_states.h says. Tokens between those of a long prompt; 0: none but where
  // prompts end, part or go on.
  std::optional<int64_t> state_cache_bytes;
  int64_t state_snapshot_interval = 1024;
  OffloadConfig offload;
  // What requests may hold beside the engine, in the memory of the machine; none: half of what the
  // plan leaves, at most 1 GiB.
  std::optional<int64_t> request_memory_bytes;
  // The memory that the plan divides, in place of what is free; none: that. Engines that take turns
  // in it, or are there together: a cache without a size of its own takes its part of a quarter.
  std::optional<int64_t> memory_budget_bytes;
  int memory_sharers = 1;

  // Machine.
  DeviceChoice device = DeviceChoice::kAuto;
  bool batch_invariant = false;         // of a device; a CPU's results never depend on the batch
  bool fast_accumulation = false;       // of a device's FP8 products
  bool profile_ops = false;             // EngineInfo::op_times is there
  int num_threads = 0;                  // 0: all cores of the process's cgroup
  std::optional<kernels::Isa> cpu_isa;  // none: the best that the machine has

  // Ranks (rank_plan.h): that share each layer, and stages that divide the layers. Without
  // `exact_ranks` a CPU has no more of them than it is faster with.
  int tensor_parallel_size = 1;
  int pipeline_parallel_size = 1;
  // Pipeline stages across MPI processes; each process plans its own stage.
  int process_stages = 1;
  bool exact_ranks = false;

  // Engines that share the weights, and divide the requests and the threads: each has ranks,
  // scheduler and cache of its own. The first one's number in metrics and messages.
  int data_parallel_size = 1;
  int first_engine = 0;

  // Whether the engine may be asked to sleep, or to replace its weights: what it then cannot have
  // is refused at the start.
  bool enable_sleep_mode = false;
  bool enable_weight_updates = false;

  LoopLimits loop;

  bool operator==(const EngineConfig&) const = default;
};

}  // namespace sluice
