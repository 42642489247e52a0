// The engine: one model, one KV cache, and one thread that owns the state of sequences, cache and
// scheduler.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/op_times.h"
#include "base/result.h"
#include "cache/cache_listener.h"
#include "cache/tier_counts.h"
#include "checkpoint/generation_config.h"
#include "device/device.h"
#include "engine/observer.h"
#include "engine/pooling_config.h"
#include "engine/request.h"
#include "models/model_config.h"
#include "tensor/element_type.h"

namespace sluice {

class Adapters;
class EngineJournal;
struct EngineConfig;
struct ProcessRanks;

// Identifies an accepted request. Handles are never reused.
using RequestHandle = uint64_t;

// Describes the engine: the parts of its plan that responses, metrics and logs show.
struct EngineInfo {
  ModelConfig model;
  GenerationConfig generation;
  std::optional<PoolingConfig> pooling;  // nullopt: the model generates
  // Returns the length of the vector that a request gets, if the model pools.
  int64_t VectorSize() const {
    return pooling && !pooling->dense.empty() ? pooling->dense.back().out_features
                                              : model.spec.ResultSize();
  }
  // Whether prompts may contain images (Request::images). If not, no_images has the reason, for
  // error messages.
  bool takes_images = false;
  std::string no_images = "the model has no image tower";
  int64_t max_image_rows = 0;  // maximum number of rows of the tower per image
  // Width of a row of a prompt (Request::rows). 0: rows are not accepted; the next member contains
  // the reason.
  int64_t prompt_row_width = 0;
  std::string no_prompt_rows;
  // End tokens of model and generation config, within the vocabulary, sorted.
  std::vector<int32_t> end_tokens;
  int64_t max_model_len = 0;
  int64_t max_num_seqs = 0;
  int num_speculative_tokens = 0;  // maximum draft tokens per sequence and step; 0: no speculation
  int64_t max_num_batched_tokens = 0;
  int64_t num_blocks = 0;
  int block_size = 0;
  // Number of tokens that fit into the KV cache, in sequences of max_model_len.
  int64_t kv_tokens = 0;
  int64_t weight_bytes = 0, workspace_bytes = 0, kv_bytes = 0;
  int64_t request_memory_bytes = 0;        // bytes that requests may use outside of the engine
  int64_t token_weight_bytes = 0;          // part of weight_bytes that a step of one token reads
  ElementType dtype = ElementType::kBF16;  // BF16 or F32
  ElementType kv_cache_dtype = ElementType::kBF16;  // BF16, F16, F32 or F8_E4M3
  std::optional<DeviceKind> device;                 // nullopt: the CPU
  std::string isa;        // instruction set of the CPU's kernels, or name of the device
  std::string simulated;  // the devices that are simulated, such as "H200x8"; "": none
  int num_threads = 0;    // total of all ranks
  int tensor_ranks = 1;   // number of ranks that divide each layer
  int pipeline_stages = 1;
  // If there are several engines, the members above describe one engine. Weights, request memory
  // and threads are totals of all engines.
  int num_engines = 1;
  int first_engine = 0;  // number of the first engine
  // Time spent in each operator of the model, over all steps and engines. Null without
  // EngineConfig::profile_ops.
  std::shared_ptr<const OpTimes> op_times = {};
};

// The parts of an engine that are in memory.
struct Residency {
  bool weights = true, cache = true;
  bool complete() const { return weights && cache; }
};

// Health of an engine.
struct EngineState {
  bool is_healthy = true;
  std::string reason;  // why the engine is unhealthy; may be ""
};

// Returns "bfloat16", "float16", "float32" or "fp8", as in --dtype and --kv-cache-dtype.
std::string_view DtypeName(ElementType type);

// Thread safety: all methods may be called from any thread. Commands reach the engine's thread
// through a bounded queue and take effect within one step.
class Engine {
 public:
  struct Hooks {
    EngineObserver* observer = nullptr;  // outlives the engine
    // If there are several engines, used instead of `observer`: returns the observer of engine i,
    // which calls it from its own thread. If empty, all engines report to `observer`.
    std::function<EngineObserver*(int i)> observer_of;
    // Returns the listener for the prefix cache events of the engine with this data-parallel rank;
    // empty: no listener. The engine owns it. Called before anything is loaded.
    std::function<Result<std::unique_ptr<CacheListener>>(int64_t rank)> listener_of;
    // Returns the journal of the i-th engine of this process (journal.h), or null; empty: no engine
    // has a journal. Journals outlive the engine.
    std::function<EngineJournal*(int i)> journal_of;
    // Called with each line of the memory plan, before anything is allocated.
    std::function<void(const std::string& line)> print_plan;
    // Called with EnginePlan::taken_bytes(), the bytes that the plan takes from its memory budget.
    std::function<void(int64_t bytes)> planned_bytes;
    std::function<void(int64_t done_bytes, int64_t total_bytes)> load_progress;
    // The processes that compute the model; this process is rank 0. Null: this process computes
    // alone. Used until the engine is created. ProcessRanks::all must outlive the engine.
    const ProcessRanks* processes = nullptr;
  };

  // Plans memory, loads the model, allocates the cache and starts the thread. If several engines
  // are configured, creates all of them behind one interface (replica_engine.h). kResourceExhausted
  // if the model does not fit; the message names the option that would help.
  static Result<std::unique_ptr<Engine>> Create(const EngineConfig& config, Hooks hooks);
  // Like Create, but stops after the plan, which is reported to `hooks`. Returns the errors that
  // occur before anything is loaded. REQUIRES: hooks.processes is null.
  static Status Check(const EngineConfig& config, const Hooks& hooks);
  // Aborts running requests and stops the thread.
  virtual ~Engine() = default;

  virtual const EngineInfo& info() const = 0;

  // Accepts a request. kInvalidArgument for a prompt that is empty, outside the vocabulary or
  // longer than the context allows; kUnavailable during shutdown or if the queue is full. After
  // success, all later results and errors go to the sink.
  virtual Result<RequestHandle> Submit(Request request) = 0;
  // Call when the client has disconnected: ends every sequence and frees its blocks within one
  // step. The sink receives nothing after the abort has been processed; until then, updates may
  // still arrive. Unknown handles are ignored.
  virtual void Abort(RequestHandle handle) = 0;
  // Call when the text matches a stop string: ends this sequence as kStop, with no more tokens. Its
  // siblings continue.
  virtual void StopSequence(RequestHandle handle, int sequence) = 0;

  // Returns the LoRA adapters that requests may use; null if none are served.
  virtual Adapters* adapters() { return nullptr; }

  // Returns whether the engine's thread makes progress: no failure, and no step or pending work
  // older than the watchdog allows.
  virtual bool healthy() const = 0;
  // Returns why the engine has stopped computing until the server is restarted; "" while it works.
  virtual std::string failure() const { return ""; }
  // Returns whether there is work, but no progress for longer than the watchdog allows.
  virtual bool stalled() const { return false; }
  // Returns the state of each engine, in order.
  virtual std::vector<EngineState> states() const { return {{healthy(), failure()}}; }
  // Returns the number of accepted requests that have not finished.
  virtual int64_t num_unfinished() const = 0;

  // Begins a drain (C9 of docs/engine-contract.md): Submit returns kUnavailable after this call,
  // except if Request::was_accepted. Running requests may finish within LoopLimits::drain_seconds.
  // After that, the rest are aborted and nothing is accepted. Returns immediately; num_unfinished()
  // falls to 0.
  virtual void BeginShutdown() = 0;

  // Removes all blocks that no sequence uses from the prefix cache. Returns false if sequences used
  // some. Waits for the engine's thread, so sinks and observers must not call it. They may call the
  // methods above.
  virtual bool ResetPrefixCache() = 0;
  // Evicts the rows of all images that no step in flight reads. Running requests compute their
  // image rows again if they need them. Waits for the engine's thread, as ResetPrefixCache does.
  virtual void ResetImageRows() {}

  // Freezes or unfreezes the engine. While frozen, it computes nothing; running requests continue
  // when it is unfrozen. BeginShutdown() unfreezes it. Waits for the engine's thread, as the
  // methods below do: sinks and observers must not call them.
  virtual Status SetFrozen(bool /*frozen*/) { return NotReloadable(); }

  // Frees the memory of weights and cache and, with `drops_files`, the page cache of the weight
  // files. Submit then returns kUnavailable until WakeUp() has restored both. kUnavailable while
  // requests are unfinished.
  virtual Status Sleep(bool /*drops_files*/) { return NotReloadable(); }
  // Reloads the weights and reallocates the cache, each if requested and absent. After an error the
  // engine still sleeps, and WakeUp() may be called again.
  virtual Status WakeUp(bool /*weights*/, bool /*cache*/) { return NotReloadable(); }
  virtual Residency residency() const { return {}; }

  // Loads the checkpoint in `folder`, which must have the same configuration, while the old weights
  // stay in use. Requests are served meanwhile. Weights that were staged earlier are replaced.
  // After an error, no weights are staged.
  virtual Status StageWeights(const std::filesystem::path& /*folder*/) { return NotReloadable(); }
  // Switches to the staged weights before the next step: no step uses both old and new weights.
  // Running requests continue; the keys and values of all their tokens are recomputed. The prefix
  // cache is emptied. WakeUp() loads from this folder afterwards. kInvalidArgument if nothing is
  // staged.
  virtual Status CommitWeights() { return NotReloadable(); }
  // Returns the folder of the checkpoint in use; "" if the engine does not report it.
  virtual std::filesystem::path weights_folder() const { return {}; }
  // Drops the staged weights.
  virtual void DropStagedWeights() {}

  // Returns totals over all engines.
  virtual CacheEventCounts cache_event_counts() const { return {}; }
  // Returns counts of blocks evicted from the prefix cache's pool to the tiers, over all engines.
  virtual TierCounts tier_counts() const { return {}; }

 private:
  static Status NotReloadable() {
    return Fail(ErrorCode::kUnsupported,
                "this engine cannot release or replace its weights and its cache");
  }
};

}  // namespace sluice
