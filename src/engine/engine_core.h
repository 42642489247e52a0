// The engine without its thread: adds requests, runs one step at a time, reports to the sinks.
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
#include "engine/engine_plan.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "sampler/sampler.h"
#include "scheduler/scheduler.h"
#include "speculation/proposer.h"
#include "tensor/buffer.h"

namespace sluice {

// A step: propose tokens, plan, fill the arrays, Model::Forward, sample, append the tokens, finish
// what has ended and free its blocks, report to the observer, then to the sinks. A sequence whose
// sampled token is the one that was proposed samples the next one, too, from the row behind it: its
// tokens are those that as many steps would have sampled. Everything a step needs is
// allocated in the constructor; a step allocates only what it hands to the sinks. Thread safety:
// one thread at a time. Ownership: owns the requests until they end; plan, model, cache, pool and
// observer outlive it.
class EngineCore {
 public:
  // Called when a request has ended, before its sink is told.
  using OnEnd = std::function<void(const ActiveRequest& request)>;
  // Called when a step has failed, before the sinks of its requests are told.
  using OnFailedStep = std::function<void()>;

  // kResourceExhausted if the system refuses the memory of the logits. `observer` may be null.
  static Result<std::unique_ptr<EngineCore>> Create(const EnginePlan& plan, Model& model,
                                                    KvCache& cache, ThreadPool& pool,
                                                    EngineObserver* observer, OnEnd on_end,
                                                    OnFailedStep on_failed_step);

  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;
  ~EngineCore();

  void Add(std::unique_ptr<ActiveRequest> request);
  // Ends the request; its sink receives nothing more. Unknown handles are ignored.
  void Abort(RequestHandle handle);
  // Ends the sequence as kStop; its siblings continue. Unknown or ended ones are ignored.
  void StopSequence(RequestHandle handle, int sequence);
  // Ends every sequence as kAbort and tells the sinks.
  void AbortAll();
  bool ResetPrefixCache();

  bool has_work() const { return !requests_.empty(); }
  // Runs a step. False if it failed; the sinks of its requests have then received OnError.
  bool Step();
  // Reports the present state to the observer, without a step: for when the engine becomes idle.
  void ReportIdle();

  // Checks C1 completely, in time of the number of blocks.
  Status CheckInvariant() const { return scheduler_.CheckInvariant(); }
  const BlockPool& pool() const { return blocks_; }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  // What the sinks receive of the step, after the observer.
  struct SinkUpdate {
    std::shared_ptr<RequestSink> sink;
    std::optional<PromptResult> prompt;
    // One of these in place of the update.
    std::optional<Error> error;
    std::optional<std::vector<float>> pooled;
    SequenceUpdate update;
  };

  EngineCore(const EnginePlan& plan, Model& model, KvCache& cache, ThreadPool& pool,
             EngineObserver* observer, OnEnd on_end, OnFailedStep on_failed_step, Buffer logits);

  void ProposeTokens();
  void LogPreemptions(const StepPlan& plan) const;
  StepInput BuildInput(const StepPlan& plan);
  // The slot of each slice's adapter; empty where none has one.
  std::span<const int32_t> AdaptersOf(const StepPlan& plan);
  // Those of a slice's rows whose results are wanted: [first, last) of the step's.
  std::pair<int64_t, int64_t> WantedRows(const PlannedSlice& slice, int64_t first_row) const;
  // Selects the rows whose tokens the model draws: those whose logits are not needed otherwise.
  std::span<TokenDraw> PlanDraws(const StepPlan& plan);
  std::span<const float> LogitsOf(int64_t index) const;
  // Adds the rows of the step to the vectors of their prompts, and ends the requests of which that
  // was the last.
  void Pool(const StepPlan& plan);
  void ComputePromptLogprobs(const StepPlan& plan);
  // Samples and appends tokens; continues with the sequences whose token was the proposed one.
  void Sample(const StepPlan& plan, StepStats& stats);
  // Appends the sampled token and finishes the sequence where the token ends it. False if there was
  // no token. `entry`: the sequence's index in `updates_`, -1 where it has none yet.
  bool AppendToken(ActiveSequence& sequence, SampleJob& job, Clock::time_point now, int64_t& entry);
  void FailStep(const StepPlan& plan, const std::string& reason);
  // The statistics that follow from the plan alone; they are reported for failed steps too.
  StepStats StatsOf(const StepPlan& plan) const;
  // What is known of the prompt, once a request.
  static void TakePrompt(ActiveRequest& request, Clock::time_point now, SinkUpdate& entry);
  // Reports the step and the present state to the observer, then `updates_` to the sinks.
  void Report(StepStats stats);

  // Why the token just appended ends the sequence, if it does.
  std::optional<FinishReason> FinishOf(const ActiveSequence& sequence, int32_t token,
                                       std::optional<int32_t>& stop_token) const;
  // Releases its blocks.
  void FinishSequence(ActiveSequence& sequence);
  // Finishes the request as kError.
  void FailRequest(ActiveRequest& request, Error error);
  // Releases its sequences' blocks and moves it from `requests_` to `finished_`.
  static RequestStats StatsOf(const ActiveRequest& request, FinishReason reason);
  void FinishRequest(ActiveRequest& request, FinishReason reason);

  const EnginePlan& plan_;
  Model& model_;
  KvCache& cache_;
  ThreadPool& pool_;
  EngineObserver* observer_;
  OnEnd on_end_;
  OnFailedStep on_failed_step_;
  BlockPool blocks_;
  std::unique_ptr<PrefixIndex> index_;
  std::unique_ptr<Proposer> proposer_;  // null: nothing is proposed
  Scheduler scheduler_;
  Sampler sampler_;
  std::unordered_map<RequestHandle, std::unique_ptr<ActiveRequest>> requests_;
  std::vector<std::unique_ptr<ActiveRequest>> finished_;  // destroyed when nothing refers to them
  std::vector<ScheduledSequence*> removed_;               // by FinishRequest

  // The arrays of a step.
  Buffer logits_;                                // [max_logit_rows, result size] F32
  std::vector<int32_t> tokens_, positions_;      // [max_num_batched_tokens]
  std::vector<kernels::AttentionSlice> slices_;  // [groups, max_num_seqs]
  std::vector<int32_t> second_texts_;            // [max_num_seqs]
  std::vector<int32_t> adapters_;                // by slice: slot or -1, where adapters are served
  std::vector<int32_t> logit_rows_;              // [max_logit_rows]
  std::vector<int32_t> first_logit_;             // by slice: index into logit_rows_
  std::vector<TokenDraw> draws_;                 // likewise, where the model draws tokens
  std::vector<SampleJob> jobs_;                  // [max_num_seqs]
  struct Sampling {
    ActiveSequence* sequence = nullptr;
    int64_t logits = 0;        // index of its first row
    int64_t num_proposed = 0;  // in this step
    int64_t update = -1;       // index into updates_
  };
  std::vector<Sampling> sampling_;                             // by job
  std::vector<SinkUpdate> updates_;                            // [max_num_seqs]
  std::vector<PromptLogprobJob> prompt_jobs_;                  // [max_logit_rows]
  std::vector<std::optional<TokenLogprobs>*> prompt_results_;  // where their results go
};

}  // namespace sluice
