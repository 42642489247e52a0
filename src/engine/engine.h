// The engine: one model, one KV cache, one thread that owns all state of sequences, cache and
// scheduler.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "checkpoint/generation_config.h"
#include "engine/engine_config.h"
#include "engine/observer.h"
#include "engine/request.h"
#include "models/model_config.h"

namespace sluice {

// A request that was taken in. Ids are never reused.
using RequestHandle = uint64_t;

// What the engine settled on at start.
struct EngineInfo {
  ModelConfig model;
  GenerationConfig generation;
  int64_t max_model_len = 0;
  int64_t max_num_seqs = 0;
  int64_t max_num_batched_tokens = 0;
  int64_t num_blocks = 0;
  int block_size = 0;
  int64_t kv_tokens = 0;  // that the KV cache holds in sequences of max_model_len
  int64_t weight_bytes = 0, workspace_bytes = 0, kv_bytes = 0;
  int64_t token_weight_bytes = 0;  // of weight_bytes, what a step of one token reads
  std::string dtype;               // "bfloat16" | "float32"
  std::string kv_cache_dtype;      // likewise, or "float16" or "fp8"
  std::string device;              // "cpu", "cuda" or "emulated"
  std::string isa;                 // of the CPU's kernels, or the device's name
  int num_threads = 0;
};

// Thread safety: all methods may be called from any thread. Commands reach the engine's thread
// through a bounded queue and take effect within one step.
class Engine {
 public:
  struct Hooks {
    EngineObserver* observer = nullptr;  // outlives the engine
    std::function<void(const std::string& line)>
        print_plan;  // the memory plan as a table, before anything is allocated
    std::function<void(int64_t done_bytes, int64_t total_bytes)> load_progress;
  };

  // Plans memory, loads the model, allocates the cache, starts the thread. kResourceExhausted names
  // the option that would make it fit.
  static Result<std::unique_ptr<Engine>> Create(const EngineConfig& config, Hooks hooks);
  // Aborts what still runs and stops the thread.
  virtual ~Engine() = default;

  virtual const EngineInfo& info() const = 0;

  // Takes a request in. kInvalidArgument for a prompt that is empty, outside the vocabulary or
  // longer than the context allows; kUnavailable when shutting down or when the queue is full.
  // After success the sink hears of everything else.
  virtual Result<RequestHandle> Submit(Request request) = 0;
  // The client went away: every sequence ends, blocks are free within one step, the sink hears
  // nothing more (no update follows once Abort has been processed; updates already under way may
  // still come). Unknown handles are ignored.
  virtual void Abort(RequestHandle handle) = 0;
  // The text met a stop string: this sequence ends as kStop with no more tokens. Its siblings go
  // on.
  virtual void StopSequence(RequestHandle handle, int sequence) = 0;

  // True while the engine's thread makes progress: no failed state, and no step or pending work
  // older than the watchdog allows.
  virtual bool healthy() const = 0;
  // Requests taken in and not yet finished.
  virtual int64_t num_unfinished() const = 0;

  // C9: from now on Submit answers kUnavailable; what runs may finish within
  // EngineConfig::drain_seconds, then it is aborted. Returns at once; num_unfinished() falls to 0.
  virtual void BeginShutdown() = 0;

  // Empties the prefix cache of blocks that no sequence holds. Returns false if some were held.
  // Waits for the engine's thread, so it is not for sinks and observers; all else is.
  virtual bool ResetPrefixCache() = 0;
};

}  // namespace sluice
