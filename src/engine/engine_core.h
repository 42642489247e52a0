// The engine without its thread: adds requests, runs one step at a time, and reports to the sinks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/thread_pool.h"
#include "cache/block_pool.h"
#include "cache/block_tiers.h"
#include "cache/prefix_index.h"
#include "constraints/matcher_queue.h"
#include "engine/active_request.h"
#include "engine/drafter.h"
#include "engine/engine.h"
#include "engine/engine_plan.h"
#include "engine/journal.h"
#include "models/dense_layers.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "sampler/draw_planner.h"
#include "sampler/sampler.h"
#include "scheduler/scheduler.h"
#include "speculation/proposer.h"
#include "tensor/buffer.h"

namespace sluice {

// Beginning a step: propose tokens (those of a draft model are computed immediately), plan, fill
// the arrays, Model::Begin. Ending a step: Model::Finish, sample, append the tokens, finish
// sequences that have ended and free their blocks, report to the observer, then to the sinks. If a
// sequence's sampled token equals its draft token, the next token is sampled from the following
// row, and so on: the tokens are the same as without draft tokens.
//
// Before a step ends, further steps may begin, up to Model::steps_in_flight() in all. Steps end in
// the order in which they began. A sequence may be in several of these steps if it has tokens for
// each: chunks of its prompt, or a token that the model draws and keeps
// (Model::takes_drawn_tokens). Abort, preemption and finish of a sequence in flight take effect
// immediately; its results of the steps in flight are dropped.
//
// A sequence is held if its constraint takes longer than a step allows (StepBudget). Once its mask
// is ready, the next step recomputes the row of logits to sample from.
//
// Everything a step needs is allocated in the constructor; a step allocates only the results for
// the sinks. Thread safety: one thread at a time. Ownership: owns the requests until they have
// ended and are in no step; plan, model, cache, pool and observer outlive it.
class EngineCore {
 public:
  // Called when a request has ended, before its sink is called.
  using OnEnd = std::function<void(const ActiveRequest& request)>;
  // Called when a step has failed, before the sinks of its requests are called.
  using OnFailedStep = std::function<void()>;

  // kResourceExhausted if the memory of the logits cannot be allocated. May be null: `observer`,
  // `draft` (the model of plan.draft), `dense` (the layers of plan.pooling), `tower`, `listener`
  // (for events of the prefix cache), and `draft_cache` (memory for a draft's cache on a device).
  static Result<std::unique_ptr<EngineCore>> Create(
      const EnginePlan& plan, Model& model, KvCache& cache, ThreadPool& pool,
      EngineObserver* observer, OnEnd on_end, OnFailedStep on_failed_step, Model* draft = nullptr,
      const DenseLayers* dense = nullptr, ImageTower* tower = nullptr,
      CacheListener* listener = nullptr, void* draft_cache = nullptr);

  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;
  ~EngineCore();

  // Adds a request. If it cannot be queued, fails the request. Throws std::bad_alloc if memory is
  // lacking even for this; the sink has then received nothing.
  void Add(std::unique_ptr<ActiveRequest> request);
  // Ends the request; its sink receives nothing more. Unknown handles are ignored.
  void Abort(RequestHandle handle);
  // Ends the sequence as kStop; its siblings continue. Ignores unknown sequences and sequences that
  // have ended.
  void StopSequence(RequestHandle handle, int sequence);
  // Ends every sequence as kAbort and notifies the sinks; then waits for the steps in flight.
  void AbortAll();
  // With `keeps_disk`, blocks on disk stay.
  bool ResetPrefixCache(bool keeps_disk = false);
  // Evicts the rows of images that no step in flight reads.
  void ResetImageRows();
  // Sets the tiers for evicted blocks of the prefix cache and, if sequences keep states, for their
  // snapshots. Called before the first request. The tiers outlive the core.
  void UseTiers(BlockTiers* tiers, BlockTiers* snapshots);
  // Reports to `journal`, or replays it. Called before the first request, after UseTiers. The
  // journal outlives the core.
  void UseJournal(EngineJournal* journal);
  // For shutdown: calls PrefixIndex::SaveToDisk if nothing is running.
  void SaveCache(double max_seconds);
  // Computes later steps with `next`, a model of the same configuration that outlives the core.
  // Drops the steps in flight, empties the prefix cache, and recomputes the tokens of running
  // sequences.
  void ReplaceModel(Model& next);
  // Sets SequenceUpdate::weights: how often the weights have been replaced.
  void set_weights(int64_t num_replaced) { num_replaced_ = num_replaced; }

  bool has_work() const { return !requests_.empty() || num_in_flight_ > 0; }
  int num_in_flight() const { return num_in_flight_; }
  // Begins as many steps as may be in flight, then ends the first of them. Returns false if a step
  // failed; the sinks of its requests have then received OnError. REQUIRES: has_work().
  bool Step();
  // Called after Add, Abort, StopSequence or Step has thrown: fails every request with `reason` and
  // ends the steps in flight, so that the engine is empty. Returns false if this cleanup failed;
  // the engine must then not be used again.
  bool FailAll(const std::string& reason) noexcept;
  // Reports the current state to the observer, without a step, when the engine becomes idle.
  void ReportIdle();
  // Ends a batch of the listener's events: the changes of the prefix cache since the last call.
  void TellCacheEvents();

  // Checks the accounting of blocks completely (rule C1 of docs/engine-contract.md). Takes time
  // proportional to the number of blocks.
  Status CheckInvariant() const { return scheduler_.CheckInvariant(); }
  const BlockPool& pool() const { return blocks_; }
  const Scheduler& scheduler() const { return scheduler_; }
  // Null if no draft model proposes tokens.
  const Drafter* drafter() const { return drafter_.get(); }

 private:
  // Results of a step for a sink, delivered after the observer is called.
  struct SinkUpdate {
    std::shared_ptr<RequestSink> sink;
    std::optional<PromptResult> prompt;
    // If `error` or `pooled` is set, the sink receives that value instead of `update`.
    std::optional<Error> error;
    std::optional<std::vector<float>> pooled;
    SequenceUpdate update;
  };

  // A slice of a step in flight.
  struct FlyingSlice : PlannedSlice {
    int64_t first_logit = 0;  // index of its first row with results
    // Whether its token is drawn on the device, so that num_drawn counts it.
    bool is_awaited = false;
    bool is_wanted = true;  // result of Scheduler::IsWanted after the step
    bool is_late = false;   // whether its token could not be chosen in this step
    ActiveSequence& active() const { return static_cast<ActiveSequence&>(*sequence); }
  };
  // State of a step until it ends.
  struct Flight {
    std::vector<FlyingSlice> slices;  // [max_num_seqs]
    std::vector<int32_t> logit_rows;  // [max_logit_rows]
    std::vector<TokenDraw> draws;  // [max_logit_rows], if the model draws tokens; empty: no draws
    std::vector<kernels::TopLogit> tops;  // top logits of the draws
    std::span<float> logits;              // [max_logit_rows, result size]
    std::span<float> maxima;  // maxima of blocks of the logits, if the model computes them
    Clock::time_point start{};
    double model_seconds = 0;  // inside the model, so far
    bool is_finished = false;  // Model::Finish was called
  };
  enum class Begun { kStep, kNothing, kFailed };

  EngineCore(const EnginePlan& plan, Model& model, KvCache& cache, ThreadPool& pool,
             EngineObserver* observer, OnEnd on_end, OnFailedStep on_failed_step, Buffer logits,
             std::unique_ptr<Drafter> drafter, Buffer handed, const DenseLayers* dense,
             Buffer dense_rows, ImageTower* tower, Buffer image_memory, CacheListener* listener);

  // kNothing if no sequence has tokens for another step.
  Begun BeginStep();
  // Ends the step in flight that began first. False if it failed.
  bool EndStep();
  void FailUnschedulable();
  // Ends the steps in flight and drops their results.
  void LandAll() noexcept;
  static int64_t CountPrompt(const FlyingSlice& slice);
  // The scheduler's time.
  int64_t MicrosecondsAt(Clock::time_point now) const;

  bool proposes() const { return proposer_ != nullptr || drafter_ != nullptr; }
  // The memory for the hidden rows of a step.
  std::span<float> HandedOf(const Flight& flight) const;
  bool hands_on() const { return drafter_ != nullptr && plan_.draft->is_head(); }
  bool replays() const { return journal_ != nullptr && journal_->replays(); }
  // Proposes tokens for sequences that are not in flight.
  void ProposeTokens();
  // Passes the hidden rows of the step being ended to a drafting head.
  void HandOn(const Flight& flight);
  // Forgets the sequence's proposals and frees its blocks of the draft model.
  void ForgetProposals(ActiveSequence& sequence);
  void LogPreemptions(const StepPlan& plan) const;
  // Fills the step's arrays.
  StepInput BuildInput(const StepPlan& plan, Flight& flight);
  // Appends the input tokens of a slice to the step's arrays.
  void AppendTokens(const PlannedSlice& slice);
  // Keeps the images of a request in the pool, and lists them in its sequences.
  void HoldImages(ActiveRequest& request);
  void ReleaseImages(ActiveRequest& request);
  // For a prompt of rows: assigns ids to the parts of the prompt. The prefix index uses these ids
  // in place of token ids.
  void HoldRows(ActiveRequest& request);
  void ReleaseRows(ActiveRequest& request);
  // Computes the image rows that the step reads and the pool lacks. Throws what the tower throws.
  void EncodeImages(const StepPlan& plan, StepInput& input);
  // Called when the step has read its images. If the step `failed`, drops the images that the step
  // was to compute.
  void EndImages(const StepPlan& plan, bool failed);
  // Adds the image rows and the RoPE positions of the step's tokens to the input.
  void AddImages(const StepPlan& plan, StepInput& input);
  void AddRowsOf(const PlannedSlice& slice, int64_t first_row);
  float* ImageRowAt(int32_t place);
  // Adds what the step does to the states of sequences, if they keep any.
  void AddStates(const StepPlan& plan, StepInput& input);
  // The adapter slot of each slice; empty if none has an adapter.
  std::span<const int32_t> AdaptersOf(const StepPlan& plan);
  // The rows of a slice for which the step returns logits or hidden states. Returns their indexes
  // in the step: [first, last).
  std::pair<int64_t, int64_t> WantedRows(const PlannedSlice& slice, int64_t first_row) const;
  // Selects the rows whose tokens the model draws, and returns one TokenDraw for each row with
  // logits. A selected row's TokenDraw holds the sampling settings and the changes to the logits
  // before the draw. Empty if the model draws no token.
  std::span<TokenDraw> PlanDraws(Flight& flight);
  // Marks the step as in flight: its requests stay alive, and sequences may continue after the
  // tokens that it draws.
  void Launch(Flight& flight);
  // Removes the first step from those in flight.
  void Land();
  std::span<const float> LogitsOf(const Flight& flight, int64_t index) const;
  std::span<const float> MaximaOf(const Flight& flight, int64_t index) const;
  // Adds the rows of the step to the vectors of their prompts, and ends the requests whose last row
  // it was.
  void Pool(const Flight& flight);
  // Replaces the pooled vectors for the sinks by the results of the dense layers.
  void ApplyDense();
  void ComputePromptLogprobs(const Flight& flight);
  // Samples the first token of each sequence for which this step samples, before the step is
  // committed.
  void SampleFirst(Flight& flight, StepStats& stats);
  void SampleRound(const Flight& flight, int64_t round);
  // Reports the round of sampling to the journal, which may replace its outcome.
  void JournalRound();
  // Appends the sampled tokens. Continues with the next row for sequences whose sampled token
  // equals the draft token.
  void Sample(const Flight& flight, StepStats& stats);
  // Records that a step verified draft tokens of the sequence and accepted `num_accepted` of them.
  void LearnProposed(ActiveSequence& sequence, int64_t num_proposed, int64_t num_accepted);
  // Passes the sequence's constraint to `matchers_`. The sequence decodes no token until the mask
  // is ready.
  void Hold(ActiveSequence& sequence);
  // Lets held sequences whose mask is ready decode again. Returns whether any sequence was held.
  bool ReleaseHeld();
  void LearnSecondsPerToken(double seconds);
  // Charges the time that the sequence's constraint took to its client's share.
  void ChargeMatcher(ActiveSequence& sequence) const;
  // Appends the sampled token, and finishes the sequence if the token ends it. False if there was
  // no token. `entry`: the sequence's index in `updates_`, -1 if it has none yet.
  bool AppendToken(ActiveSequence& sequence, SampleJob& job, Clock::time_point now, int64_t& entry);
  void FailStep(const Flight& flight, const std::string& reason);
  // Forgets finished requests that are no longer in any step.
  void ForgetFinished();
  // Fills in the prompt result, once per request.
  static void TakePrompt(ActiveRequest& request, Clock::time_point now, SinkUpdate& entry);
  // Reports to the observer the step, the plans since the last report and the current state; then
  // sends `updates_` to the sinks.
  void Report(StepStats stats);

  // Returns why the token just appended ends the sequence; nullopt if it does not end it.
  std::optional<FinishReason> FinishOf(const ActiveSequence& sequence, int32_t token,
                                       std::optional<int32_t>& stop_token) const;
  // Ends the sequence and releases its blocks.
  void FinishSequence(ActiveSequence& sequence, FinishReason reason);
  // Ends the request as kError.
  void FailRequest(ActiveRequest& request, Error error);
  // Returns the statistics of a request that ends with `reason`. FinishRequest ends the request:
  // releases its sequences' blocks and moves it from `requests_` to `finished_`.
  static RequestStats StatsOf(const ActiveRequest& request, FinishReason reason);
  void FinishRequest(ActiveRequest& request, FinishReason reason);

  const EnginePlan& plan_;
  Model* model_;  // not null
  int64_t num_replaced_ = 0;
  KvCache& cache_;
  ThreadPool& pool_;
  EngineObserver* observer_;
  EngineJournal* journal_ = nullptr;  // null: nothing is recorded or replayed
  OnEnd on_end_;
  OnFailedStep on_failed_step_;
  BlockPool blocks_;
  std::unique_ptr<StatePool> states_;  // null if sequences keep none
  CacheListener* const listener_;      // null: events of the prefix cache are not reported
  std::unique_ptr<PrefixIndex> index_;
  BlockTiers* tiers_ = nullptr;  // null: evicted blocks are lost
  BlockTiers* snapshot_tiers_ = nullptr;
  bool moves_blocks_ = false;          // value of StepPlan::moves_blocks in the last plan
  ImageTower* const tower_;            // null: prompts may not hold images
  std::unique_ptr<ImagePool> images_;  // null if tower_ is null
  ImagePool row_ids_{kPromptPart};  // ids of parts of prompts (Request::rows); holds no rows itself
  Buffer image_memory_;  // F32 [plan.image_rows, row width of the tower]; or they are on the device
  // At most one of these two is set. If neither is set, nothing is proposed.
  std::unique_ptr<Proposer> proposer_;
  std::unique_ptr<Drafter> drafter_;
  Scheduler scheduler_;
  Sampler sampler_;
  StepBudget step_budget_;  // measures the time from the end of a step to the end of the next one
  MatcherQueue matchers_;
  // Average over recent steps; a matcher's time is charged at this rate.
  double seconds_per_token_ = 0;
  const DrawLimits draw_limits_;
  DrawPlanner draw_planner_;
  std::unordered_map<RequestHandle, std::unique_ptr<ActiveRequest>> requests_;
  std::vector<std::unique_ptr<ActiveRequest>> finished_;  // kept until no step refers to them
  std::vector<ScheduledSequence*> removed_;               // scratch of FinishRequest

  const DenseLayers* const dense_;  // null: pooled vectors are not changed
  Buffer dense_rows_;               // F32 [2, max_num_seqs, width of the widest dense layer]
  Buffer logits_;                   // logits of all steps in flight, F32, followed by their maxima
  Buffer handed_;  // F32 [max_num_batched_tokens, width], if a drafting head reads hidden rows
  std::vector<Flight> flights_;  // a ring of reused entries
  size_t first_flight_ = 0;      // index of the flight that began first
  int num_in_flight_ = 0;
  const Clock::time_point started_ = Clock::now();  // the scheduler's time 0
  Clock::time_point last_end_{};                    // end of the last step
  StepStats planned_;         // figures of plans that have not been reported yet
  int64_t num_replayed_ = 0;  // number of replayed steps that have been reported
  double draft_seconds_ = 0;  // since the last step ended

  // Arrays of the step being begun.
  std::vector<int32_t> tokens_, positions_;      // [max_num_batched_tokens]
  std::vector<kernels::AttentionSlice> slices_;  // [groups, max_num_seqs]
  std::vector<int32_t> second_texts_;            // [max_num_seqs]
  std::vector<ImageRow> image_inputs_;           // [max_num_batched_tokens]
  std::vector<StoredImageRow> stored_images_;    // [plan.image_rows]
  std::vector<int32_t> rope_positions_;          // [axes, max_num_batched_tokens]
  std::vector<float*> image_targets_;            // [plan.image_rows]
  std::vector<StateSlot> state_slots_;           // [max_num_seqs], if sequences keep states
  std::vector<int32_t> adapters_;                // slot of each slice or -1, if adapters are served
  std::vector<Drafter::Job> draft_jobs_;         // [DraftPlan::max_sequences]
  std::vector<Drafter::Hidden> draft_hidden_;    // [DraftPlan::max_sequences]
  std::vector<DrawJob> draw_jobs_;               // [max_num_seqs]
  // Arrays of the step being ended.
  std::vector<SampleJob> jobs_;  // [max_num_seqs]
  struct Sampling {
    ActiveSequence* sequence = nullptr;
    FlyingSlice* slice = nullptr;
    int64_t logits = 0;        // index of its first row
    int64_t num_proposed = 0;  // number of its draft tokens in this step
    int64_t update = -1;       // index into updates_
    bool is_slow = false;      // SampledRow::is_slow
  };
  std::vector<Sampling> sampling_;                             // by job
  std::vector<SampledRow> sampled_;                            // by job, with a journal
  std::vector<SinkUpdate> updates_;                            // [max_num_seqs]
  std::vector<PromptLogprobJob> prompt_jobs_;                  // [max_logit_rows]
  std::vector<std::optional<TokenLogprobs>*> prompt_results_;  // destinations of their results
};

}  // namespace sluice
