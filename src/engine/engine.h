// The engine: one model, one KV cache, one thread that owns all state of sequences, cache and
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
struct EngineConfig;
struct ProcessRanks;

// An accepted request. Handles are never reused.
using RequestHandle = uint64_t;

// What the engine runs: the parts of its plan that answers, metrics and logs show.
struct EngineInfo {
  ModelConfig model;
  GenerationConfig generation;
  std::optional<PoolingConfig> pooling;  // of every request; none: they generate
  // Numbers of the vector that a request gets, where the model pools.
  int64_t VectorSize() const {
    return pooling && !pooling->dense.empty() ? pooling->dense.back().out_features
                                              : model.spec.ResultSize();
  }
  // Whether prompts may hold images (Request::images), and if not, why, for messages.
  bool takes_images = false;
  std::string no_images = "the model has no image tower";
  int64_t max_image_rows = 0;  // rows of a tower that one image may have
  // Numbers of a row of a prompt (Request::rows); 0: none are taken, and why, for messages.
  int64_t prompt_row_width = 0;
  std::string no_prompt_rows;
  std::vector<int32_t> end_tokens;  // end-of-sequence tokens of both, inside the vocabulary, sorted
  int64_t max_model_len = 0;
  int64_t max_num_seqs = 0;
  int num_speculative_tokens = 0;  // of a sequence in a step; 0: nothing is proposed
  int64_t max_num_batched_tokens = 0;
  int64_t num_blocks = 0;
  int block_size = 0;
  int64_t kv_tokens = 0;  // that the KV cache holds in sequences of max_model_len
  int64_t weight_bytes = 0, workspace_bytes = 0, kv_bytes = 0;
  int64_t request_memory_bytes = 0;        // that requests may hold beside the engine
  int64_t token_weight_bytes = 0;          // of weight_bytes, what a step of one token reads
  ElementType dtype = ElementType::kBF16;  // BF16 or F32
  ElementType kv_cache_dtype = ElementType::kBF16;  // BF16, F16, F32 or F8_E4M3
  std::optional<DeviceKind> device;                 // none: the CPU
  std::string isa;       // instruction set of the CPU's kernels, or the device's name
  int num_threads = 0;   // of all ranks
  int tensor_ranks = 1;  // ranks that share each layer
  int pipeline_stages = 1;
  // Where there are several engines, the above is of each of them, but weights, requests' memory
  // and threads are of all.
  int num_engines = 1;
  int first_engine = 0;  // its number
  // The time of each operator of the model, over all steps so far; of several engines together.
  // Null without EngineConfig::profile_ops.
  std::shared_ptr<const OpTimes> op_times = {};
};

// What of an engine is in memory.
struct Residency {
  bool weights = true, cache = true;
  bool complete() const { return weights && cache; }
};

// Whether an engine computes.
struct EngineState {
  bool is_healthy = true;
  std::string reason;  // why not; may be "" all the same
};

// "bfloat16", "float16", "float32" or "fp8": as --dtype and --kv-cache-dtype spell them.
std::string_view DtypeName(ElementType type);

// Thread safety: all methods may be called from any thread. Commands reach the engine's thread
// through a bounded queue and take effect within one step.
class Engine {
 public:
  struct Hooks {
    EngineObserver* observer = nullptr;  // outlives the engine
    // With several engines, used instead of `observer`: returns the observer of engine i. If empty,
    // all engines report to `observer`, each from a thread of its own.
    std::function<EngineObserver*(int i)> observer_of;
    // Who hears what the prefix cache of the engine with this data-parallel rank gains and loses;
    // empty: nobody. The engine owns it. Called before anything is loaded.
    std::function<Result<std::unique_ptr<CacheListener>>(int64_t rank)> listener_of;
    // Called with each line of the memory plan, before anything is allocated.
    std::function<void(const std::string& line)> print_plan;
    // Called with the bytes that the plan takes in all, of the memory that it divides.
    std::function<void(int64_t bytes)> planned_bytes;
    std::function<void(int64_t done_bytes, int64_t total_bytes)> load_progress;
    // The processes that compute the model, of which this is rank 0; null: this one alone. Used
    // until the engine is created; its communicator as long as the engine lives.
    const ProcessRanks* processes = nullptr;
  };

  // Plans memory, loads the model, allocates the cache, starts the thread: of as many engines as
  // the configuration says, behind one (replica_engine.h). kResourceExhausted where the model does
  // not fit, with the option that would make it fit.
  static Result<std::unique_ptr<Engine>> Create(const EngineConfig& config, Hooks hooks);
  // The same up to the plan, which is told to `hooks`: what would be refused before anything is
  // loaded. REQUIRES: hooks.processes is null.
  static Status Check(const EngineConfig& config, const Hooks& hooks);
  // Aborts what still runs and stops the thread.
  virtual ~Engine() = default;

  virtual const EngineInfo& info() const = 0;

  // Accepts a request. kInvalidArgument for a prompt that is empty, outside the vocabulary or
  // longer than the context allows; kUnavailable when shutting down or when the queue is full.
  // After success everything else is reported to the sink.
  virtual Result<RequestHandle> Submit(Request request) = 0;
  // The client disconnected: every sequence ends and its blocks are free within one step. The sink
  // receives nothing once the abort has been processed; updates already under way may still come.
  // Unknown handles are ignored.
  virtual void Abort(RequestHandle handle) = 0;
  // The text matched a stop string: this sequence ends as kStop with no more tokens, its siblings
  // continue.
  virtual void StopSequence(RequestHandle handle, int sequence) = 0;

  // The LoRA adapters that requests may ask for; null where none are served.
  virtual Adapters* adapters() { return nullptr; }

  // True while the engine's thread makes progress: no failed state, and no step or pending work
  // older than the watchdog allows.
  virtual bool healthy() const = 0;
  // Why nothing is computed any more until the server is restarted; "" while that is not so.
  virtual std::string failure() const { return ""; }
  // True while there is work, and none has been done for longer than the watchdog allows.
  virtual bool stalled() const { return false; }
  // The state of each engine behind this one, in order.
  virtual std::vector<EngineState> states() const { return {{healthy(), failure()}}; }
  // Requests accepted and not yet finished.
  virtual int64_t num_unfinished() const = 0;

  // C9: from now on Submit answers kUnavailable, except where Request::was_accepted; what
  // runs may finish within LoopLimits::drain_seconds, then it is aborted and nothing is accepted.
  // Returns at once; num_unfinished() falls to 0.
  virtual void BeginShutdown() = 0;

  // Removes the blocks that no sequence holds from the prefix cache. Returns false if some were
  // held. Waits for the engine's thread: unlike the other methods it must not be called by a sink
  // or an observer.
  virtual bool ResetPrefixCache() = 0;

  // While frozen, nothing is computed: what runs goes on where it was afterwards. BeginShutdown()
  // ends it. Waits for the engine's thread, as the methods below do: not to be called by a sink or
  // an observer, either.
  virtual Status SetFrozen(bool /*frozen*/) { return NotReloadable(); }

  // Gives back the memory of weights and cache, and, with `drops_files`, the system's copy of the
  // weights' files. Afterwards Submit answers kUnavailable until both
  // are awake. kUnavailable while requests are unfinished.
  virtual Status Sleep(bool /*drops_files*/) { return NotReloadable(); }
  // Loads weights or allocates the cache again, as far as they are not there. After an error the
  // engine sleeps on, and it may be tried again.
  virtual Status WakeUp(bool /*weights*/, bool /*cache*/) { return NotReloadable(); }
  virtual Residency residency() const { return {}; }

  // Loads the checkpoint in `folder`, of the same configuration, beside the weights that compute:
  // requests are served meanwhile. Replaces what was staged before; after an error nothing is.
  virtual Status StageWeights(const std::filesystem::path& /*folder*/) { return NotReloadable(); }
  // From the next step on, what was staged computes: no step uses both. Running requests go on,
  // with the keys and values of all their tokens computed again, and the prefix cache is empty.
  // WakeUp() loads from that folder from now on. kInvalidArgument where nothing is staged.
  virtual Status CommitWeights() { return NotReloadable(); }
  // The folder of the checkpoint that computes; "" where the engine does not tell.
  virtual std::filesystem::path weights_folder() const { return {}; }
  // Forgets what was staged.
  virtual void DropStagedWeights() {}

  // Over all engines.
  virtual CacheEventCounts cache_event_counts() const { return {}; }
  // What became of blocks that have left the prefix cache's pool, over all engines.
  virtual TierCounts tier_counts() const { return {}; }

 private:
  static Status NotReloadable() {
    return Fail(ErrorCode::kUnsupported,
                "this engine keeps its weights and its cache as they were made at the start");
  }
};

}  // namespace sluice
