// The engine without its thread: takes requests in, runs one step at a time, tells the sinks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/thread_pool.h"
#include "cache/block_pool.h"
#include "cache/prefix_index.h"
#include "engine/active_request.h"
#include "engine/engine.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "sampler/sampler.h"
#include "scheduler/scheduler.h"
#include "tensor/buffer.h"

namespace sluice {

struct CoreOptions {
  SchedulerLimits limits;
  int64_t num_blocks = 0;
  bool enable_prefix_caching = true;
  std::vector<int32_t> eos_token_ids = {};

  int64_t max_logit_rows() const { return limits.max_num_seqs + limits.max_prompt_logit_rows; }
};

// A step: plan, fill the arrays, Model::Forward, sample, append, check for the end, free, tell the
// observer, tell the sinks. Everything a step needs is allocated in the constructor; a step
// allocates only the news it hands to sinks. Thread safety: one thread at a time.   Ownership: owns
// the requests until they end; model, cache, pool and observer outlive it.
class EngineCore {
 public:
  // Called when a request has ended, before its last news.
  using OnEnd = std::function<void(const ActiveRequest& request)>;
  // Called when a step has failed, before its requests hear of it.
  using OnFailedStep = std::function<void()>;

  // kResourceExhausted if the machine refuses the memory of the logits.
  static Result<std::unique_ptr<EngineCore>> Create(Model& model, KvCache& cache, ThreadPool& pool,
                                                    const CoreOptions& options,
                                                    EngineObserver* observer, OnEnd on_end,
                                                    OnFailedStep on_failed_step);

  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;
  ~EngineCore();

  void Add(std::unique_ptr<ActiveRequest> request);
  // The request leaves with no more news. Unknown handles are ignored.
  void Abort(RequestHandle handle);
  // The sequence ends as kStop, its siblings go on. Unknown or ended ones are ignored.
  void StopSequence(RequestHandle handle, int sequence);
  // Every sequence ends as kAbort, and its sink is told.
  void AbortAll();
  bool ResetPrefixCache();

  bool has_work() const { return !requests_.empty(); }
  // Runs a step. False if it failed; its requests have then heard OnError and are gone.
  bool Step();
  // Tells the observer of a state that no step reports: used when the engine falls idle.
  void ReportIdle();

  // C1, in full.
  Status CheckInvariant() const { return scheduler_.CheckInvariant(); }
  const BlockPool& pool() const { return blocks_; }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  EngineCore(Model& model, KvCache& cache, ThreadPool& pool, const CoreOptions& options,
             EngineObserver* observer, OnEnd on_end, OnFailedStep on_failed_step, Buffer logits);

  void LogPreemptions(const StepPlan& plan) const;
  StepInput BuildInput(const StepPlan& plan);
  // Asks the model to draw the tokens of the rows from which nothing else is wanted.
  std::span<TokenDraw> PlanDraws(const StepPlan& plan);
  std::span<const float> LogitsOf(int64_t index) const;
  void TakePromptLogprobs(const StepPlan& plan);
  void Sample(const StepPlan& plan);
  // Appends the sampled token, ends what it ends, and notes the news. False if there was no token.
  bool Take(ActiveSequence& sequence, SampleJob& job, Clock::time_point now);
  void FailStep(const StepPlan& plan, const std::string& reason);
  // What the plan adds, even where the step then fails.
  StepStats StatsOf(const StepPlan& plan) const;
  // Tells the observer what a step added and what there is now, then the sinks their news.
  void Tell(StepStats stats);

  // Whether the token just appended ends the sequence.
  std::optional<FinishReason> EndOf(const ActiveSequence& sequence, int32_t token,
                                    std::optional<int32_t>& stop_token) const;
  // Its blocks are free from now on.
  void FinishSequence(ActiveSequence& sequence);
  // Ends the request and notes the news.
  void FailRequest(ActiveRequest& request, Error error);
  // Releases what its sequences hold and takes it out of the table; it lives until the graveyard is
  // emptied.
  void Bury(ActiveRequest& request, FinishReason reason);

  Model& model_;
  KvCache& cache_;
  ThreadPool& pool_;
  const CoreOptions options_;
  EngineObserver* observer_;
  OnEnd on_end_;
  OnFailedStep on_failed_step_;
  BlockPool blocks_;
  std::unique_ptr<PrefixIndex> index_;
  Scheduler scheduler_;
  Sampler sampler_;
  std::unordered_map<RequestHandle, std::unique_ptr<ActiveRequest>> requests_;
  std::vector<std::unique_ptr<ActiveRequest>> graveyard_;
  std::vector<ScheduledSequence*> removed_;  // by Bury

  // The arrays of a step.
  Buffer logits_;                                // [max_logit_rows, vocab_size] F32
  std::vector<int32_t> tokens_, positions_;      // [max_num_batched_tokens]
  std::vector<kernels::AttentionSlice> slices_;  // [groups, max_num_seqs]
  std::vector<int32_t> logit_rows_;              // [max_logit_rows]
  std::vector<int32_t> first_logit_;             // by slice: index into logit_rows_
  std::vector<TokenDraw> draws_;                 // likewise, where the model draws tokens
  std::vector<SampleJob> jobs_;                  // [max_num_seqs]
  std::vector<ActiveSequence*> job_sequences_;   // likewise
  // What the sinks hear of the step, once the observer has.
  struct StepNews {
    std::shared_ptr<RequestSink> sink;
    std::optional<PromptResult> prompt;
    std::optional<Error> error;  // in place of the update
    SequenceUpdate update;
  };
  std::vector<StepNews> news_;                                // [max_num_seqs]
  std::vector<PromptLogprobJob> prompt_jobs_;                 // [max_logit_rows]
  std::vector<std::optional<TokenLogprobs>*> prompt_places_;  // where their results go
};

}  // namespace sluice
