// The configuration of an engine: the resolved command line options, typed. This is the only place
// that defines the engine's defaults. For a field without a value, the plan (engine_plan.h) chooses
// a value according to the model and the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
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

// The value of --device. kAuto: the first CUDA device if this program has the backend and the
// machine has a device, else the CPU.
enum class DeviceChoice { kAuto, kCpu, kCuda, kEmulated, kHip };

struct DeviceProfile;  // simulation/device_profile.h

// --simulate: nothing is loaded or computed, and a step takes the time that it would take on these
// devices.
struct SimulationConfig {
  std::shared_ptr<const DeviceProfile> device;  // null: no simulation
  int count = 1;                                // of devices
  double speed = 1;  // a simulated step takes 1 / speed of the time that the real step would take
  // Average number of tokens after which answers end; 0: never.
  int64_t mean_output = 0;

  bool is_given() const { return device != nullptr; }
  bool operator==(const SimulationConfig&) const = default;
};

// Defaults of a step on small machines. The defaults for larger devices are higher (engine_plan.h).
inline constexpr int64_t kDefaultMaxNumSeqs = 256;
inline constexpr int64_t kDefaultMaxNumBatchedTokens = 2048;

// Maximum of data_parallel_size.
inline constexpr int kMostEngines = 64;

// Limits on the requests that the engine keeps, and time limits.
struct LoopLimits {
  // Running requests may take this long to finish after BeginShutdown().
  double drain_seconds = 30;
  // healthy() is false if there is work, but neither a step nor the queue has progressed for this
  // long.
  double watchdog_seconds = 300;
  // Maximum numbers of waiting and running requests, of their sequences, and of their prompt tokens
  // over all sequences. Further requests are refused with kUnavailable. The last limit bounds the
  // memory of a long queue.
  int64_t max_unfinished = 16384;
  int64_t max_unfinished_sequences = 16 * int64_t{kMaxSequences};
  int64_t max_unfinished_tokens = int64_t{64} << 20;

  bool operator==(const LoopLimits&) const = default;
};

struct EngineConfig {
  std::filesystem::path model_folder;
  std::filesystem::path generation_config_folder;  // "": model_folder
  const std::filesystem::path& GenerationConfigFolder() const {
    return generation_config_folder.empty() ? model_folder : generation_config_folder;
  }

  json::Value config_overrides;  // replaces keys of config.json (OverrideConfig()); null: none
  LoadQuantization load_quantization;

  // False: prompts may not hold images, even if the model has an image tower.
  bool takes_images = true;
  PoolingOptions pooling;
  AdapterSettings adapters;

  // Types.
  std::optional<ElementType> dtype;           // BF16, F32, or F16, which runs as BF16
  std::optional<ElementType> kv_cache_dtype;  // BF16, F16, F32 or F8_E4M3
  ModelOptions::ActivationRounding activation_format = ModelOptions::ActivationRounding::kAuto;
  bool dummy_weights = false;  // --load-format dummy
  // Load weights even if they contain NaN or infinite numbers, with a warning.
  bool allow_nonfinite = false;
  // Seed of dummy weights, and of requests that specify no seed (0: a random seed for these
  // requests).
  uint64_t seed = 0;

  // Steps and sequences.
  int block_size = 16;                   // tokens
  std::optional<int64_t> max_model_len;  // nullopt: limited only by the checkpoint and the memory
  std::optional<int64_t> max_num_seqs;   // nullopt: chosen by the machine
  std::optional<int64_t> max_num_batched_tokens;  // nullopt: chosen by the machine
  bool enable_prefix_caching = true;
  bool enable_chunked_prefill = true;
  SchedulingPolicy scheduling_policy = SchedulingPolicy::kFair;
  Ageing ageing{.level_us = 30'000'000, .max_levels = 10};
  int64_t long_prefill_token_threshold = 0;  // 0: off
  bool async_scheduling = false;  // whether to submit a step while another runs; only on one device
  GraphConfig graphs;
  // At most one of the two members proposes tokens.
  SpeculationConfig speculation;
  DraftConfig draft;
  bool speculates() const {
    return draft.is_given() || speculation.method != SpeculationConfig::Method::kNone;
  }

  // Memory. On a CPU, the cache takes a quarter of the free memory by default. With
  // `memory_utilization`, it takes that fraction of the memory that this process may use, minus
  // weights and workspace. On a device, weights, workspace and cache together take
  // `memory_utilization` (0.92 by default) of its memory; with `utilization_of_rest`, the cache
  // takes that fraction (0.9 by default) of the memory that weights and workspace leave.
  // `kv_cache_bytes` and `num_blocks_override` set the size of the cache directly.
  std::optional<double> memory_utilization;
  bool utilization_of_rest = false;  // as in TensorRT-LLM; for devices
  std::optional<int64_t> kv_cache_bytes;
  std::optional<int64_t> num_blocks_override;  // number of blocks, each with all layers
  // Only if sequences keep recurrent states. The bytes of the cache's memory that their snapshots
  // may take (nullopt: see plan_states.h), and the number of tokens between snapshots of a long
  // prompt. 0: snapshots only at points where prompts end, diverge or continue.
  std::optional<int64_t> state_cache_bytes;
  int64_t state_snapshot_interval = 1024;
  OffloadConfig offload;
  // Host memory that requests may take in addition to the engine's; nullopt: half of the memory
  // that the plan leaves, at most 1 GiB.
  std::optional<int64_t> request_memory_bytes;
  // The memory that the plan divides; nullopt: the free memory. memory_sharers: number of engines
  // that share this memory, simultaneously or one after another. The default size of the cache is
  // divided by that number.
  std::optional<int64_t> memory_budget_bytes;
  int memory_sharers = 1;

  // Machine.
  DeviceChoice device = DeviceChoice::kAuto;
  SimulationConfig simulation;
  bool batch_invariant = false;    // only for devices; on a CPU results never depend on the batch
  bool fast_accumulation = false;  // for FP8 products on devices
  bool exchanges_by_nccl = false;  // devices never write into each other's memory
  bool profile_ops = false;        // fill EngineInfo::op_times
  int num_threads = 0;             // 0: all cores of the process's cgroup
  std::optional<kernels::Isa> cpu_isa;  // nullopt: the best that the CPU supports

  // Ranks (rank_plan.h): the number of ranks that divide each layer, and the number of stages that
  // divide the layers. Without `exact_ranks`, a CPU uses at most as many ranks as make it faster.
  int tensor_parallel_size = 1;
  int pipeline_parallel_size = 1;
  // Pipeline stages across MPI processes; each process plans its own stage.
  int process_stages = 1;
  bool are_ranks_processes = false;
  bool exact_ranks = false;

  // Number of engines that share the weights and divide requests and threads; each has its own
  // ranks, scheduler and cache. first_engine: number of the first one in metrics and messages.
  int data_parallel_size = 1;
  int first_engine = 0;

  // Whether the engine can be asked to sleep or to replace its weights. If so, options that rule
  // this out are refused at the start.
  bool enable_sleep_mode = false;
  bool enable_weight_updates = false;

  LoopLimits loop;

  bool operator==(const EngineConfig&) const = default;
};

}  // namespace sluice
