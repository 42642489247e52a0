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
#include "cache/block_tiers.h"
#include "cache/prefix_index.h"
#include "constraints/matcher_queue.h"
#include "engine/active_request.h"
#include "engine/drafter.h"
#include "engine/engine.h"
#include "engine/engine_plan.h"
#include "models/dense_layers.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "sampler/draw_planner.h"
#include "sampler/sampler.h"
#include "scheduler/scheduler.h"
#include "speculation/proposer.h"
#include "tensor/buffer.h"

namespace sluice {

// A step begins: propose tokens (those of a draft model are computed at once), plan, fill the
// arrays, Model::Begin. It ends: Model::Finish, sample, append the tokens, finish what has ended
// and free its blocks, report to the observer, then to the sinks. A sequence whose sampled token is
// the one that was proposed samples the next one, too, from the row after it: its tokens are those
// that as many steps would have sampled.
//
// Between the two halves of a step others begin, up to Model::steps_in_flight() in all; they end in
// the order in which they began. A sequence is in several where it has tokens for them: chunks of
// its prompt, or a token that the model draws and keeps (Model::takes_drawn_tokens). Whatever
// becomes of a sequence while it is in flight, it becomes at once: what the steps compute of it is
// dropped.
//
// A sequence whose constraint takes longer than a step has time for (StepBudget) is held: the row
// that it would have sampled from is computed again in the step after its mask is there.
//
// Everything a step needs is allocated in the constructor; a step allocates only what it hands to
// the sinks. Thread safety: one thread at a time. Ownership: owns the requests until they have
// ended and are in no step; plan, model, cache, pool and observer outlive it.
class EngineCore {
 public:
  // Called when a request has ended, before its sink is told.
  using OnEnd = std::function<void(const ActiveRequest& request)>;
  // Called when a step has failed, before the sinks of its requests are told.
  using OnFailedStep = std::function<void()>;

  // kResourceExhausted if the system refuses the memory of the logits. `observer` may be null, and
  // so may `draft`, the model of plan.draft, and `dense`, the layers of plan.pooling, where there
  // are none. `listener`: of the prefix cache; may be null.
  static Result<std::unique_ptr<EngineCore>> Create(
      const EnginePlan& plan, Model& model, KvCache& cache, ThreadPool& pool,
      EngineObserver* observer, OnEnd on_end, OnFailedStep on_failed_step, Model* draft = nullptr,
      const DenseLayers* dense = nullptr, ImageTower* tower = nullptr,
      CacheListener* listener = nullptr);

  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;
  ~EngineCore();

  // A request that cannot be queued fails. Throws std::bad_alloc if not even that is possible; the
  // request's sink has received nothing then.
  void Add(std::unique_ptr<ActiveRequest> request);
  // Ends the request; its sink receives nothing more. Unknown handles are ignored.
  void Abort(RequestHandle handle);
  // Ends the sequence as kStop; its siblings continue. Unknown or ended ones are ignored.
  void StopSequence(RequestHandle handle, int sequence);
  // Ends every sequence as kAbort and tells the sinks; then waits for the steps in flight.
  void AbortAll();
  // With `keeps_disk`, blocks on disk stay.
  bool ResetPrefixCache(bool keeps_disk = false);
  // Where evicted blocks of the prefix cache go. To be called before the first request; the tiers
  // outlive the core.
  void UseTiers(BlockTiers* tiers);
  // At the end: PrefixIndex::SaveToDisk, if nothing runs.
  void SaveCache(double max_seconds);
  // Steps from now on are computed by `next`, of the same configuration, which outlives the core.
  // Steps in flight are dropped, the prefix cache is emptied, and running sequences compute their
  // tokens again.
  void ReplaceModel(Model& next);
  // What updates say of the weights: how often they have been replaced.
  void set_weights(int64_t num_replaced) { num_replaced_ = num_replaced; }

  bool has_work() const { return !requests_.empty() || num_in_flight_ > 0; }
  int num_in_flight() const { return num_in_flight_; }
  // Begins steps until as many are in flight as may be, then ends the first of them. False if one
  // failed; the sinks of its requests have then received OnError. REQUIRES: has_work().
  bool Step();
  // After Add, Abort, StopSequence or Step has thrown: fails every request with `reason` and ends
  // the steps in flight, so that the next request finds an empty engine. False if that failed, too,
  // and the engine may not be used any more.
  bool FailAll(const std::string& reason) noexcept;
  // Reports the present state to the observer, without a step: for when the engine becomes idle.
  void ReportIdle();
  // What the prefix cache has gained and lost since the last call is a batch of its listener.
  void TellCacheEvents();

  // Checks C1 completely, in time of the number of blocks.
  Status CheckInvariant() const { return scheduler_.CheckInvariant(); }
  const BlockPool& pool() const { return blocks_; }
  const Scheduler& scheduler() const { return scheduler_; }
  // Null where no draft model proposes.
  const Drafter* drafter() const { return drafter_.get(); }

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

  // A slice of a step in flight.
  struct FlyingSlice : PlannedSlice {
    int64_t first_logit = 0;  // index of its first wanted row
    bool is_awaited = false;  // its token is drawn, and counts in the sequence's num_drawn
    bool is_wanted = true;    // once the step is done: Scheduler::IsWanted
    bool is_late = false;     // its token could not be chosen in the step
    ActiveSequence& active() const { return static_cast<ActiveSequence&>(*sequence); }
  };
  // What is kept of a step until it ends.
  struct Flight {
    std::vector<FlyingSlice> slices;      // [max_num_seqs]
    std::vector<int32_t> logit_rows;      // [max_logit_rows]
    std::vector<TokenDraw> draws;         // likewise, where the model draws tokens; empty: no row
    std::vector<kernels::TopLogit> tops;  // what those tell of
    std::span<float> logits;              // [max_logit_rows, result size]
    std::span<float> maxima;              // of the logits' blocks, where the model finds them
    Clock::time_point start{};
    double model_seconds = 0;  // so far
    bool is_finished = false;  // Model::Finish was called
  };
  enum class Begun { kStep, kNothing, kFailed };

  EngineCore(const EnginePlan& plan, Model& model, KvCache& cache, ThreadPool& pool,
             EngineObserver* observer, OnEnd on_end, OnFailedStep on_failed_step, Buffer logits,
             std::unique_ptr<Drafter> drafter, Buffer handed, const DenseLayers* dense,
             Buffer dense_rows, ImageTower* tower, Buffer image_memory, CacheListener* listener);

  // kNothing where no sequence has tokens for another step.
  Begun BeginStep();
  // Ends the step that began first. False if it failed.
  bool EndStep();
  void FailUnschedulable();
  // Ends the steps in flight and drops what they compute.
  void LandAll() noexcept;
  static int64_t CountPrompt(const FlyingSlice& slice);
  void TellTime(Clock::time_point now);

  bool proposes() const { return proposer_ != nullptr || drafter_ != nullptr; }
  // For sequences that are not in flight.
  void ProposeTokens();
  // The hidden rows of the step that ends, to a drafting head.
  void HandOn(const Flight& flight);
  // What was proposed for the sequence is forgotten, and its blocks of the draft are free.
  void ForgetProposals(ActiveSequence& sequence);
  void LogPreemptions(const StepPlan& plan) const;
  // Fills the step's arrays.
  StepInput BuildInput(const StepPlan& plan, Flight& flight);
  // Appends the tokens of a sequence's slice, as the step computes them.
  void AppendTokens(const PlannedSlice& slice);
  // The images of a request are held in the pool, and its sequences know them.
  void HoldImages(ActiveRequest& request);
  void ReleaseImages(ActiveRequest& request);
  // Likewise for a prompt of rows: its parts have ids, by which the prefix index knows them.
  void HoldRows(ActiveRequest& request);
  void ReleaseRows(ActiveRequest& request);
  // Makes the rows that the step reads and that are not there. Throws what the tower throws.
  void EncodeImages(const StepPlan& plan);
  // The step has read its images. What it was to make is not there if it `failed`.
  void EndImages(const StepPlan& plan, bool failed);
  // Rows of images and positions on axes that the step's tokens have.
  void AddImages(const StepPlan& plan, StepInput& input);
  void AddRowsOf(const PlannedSlice& slice, int64_t first_row);
  float* ImageRowAt(int32_t place);
  // What the step does to the states of sequences, where they keep some.
  void AddStates(const StepPlan& plan, StepInput& input);
  // The slot of each slice's adapter; empty where none has one.
  std::span<const int32_t> AdaptersOf(const StepPlan& plan);
  // The rows of a slice whose results are wanted: [first, last) among those of the step.
  std::pair<int64_t, int64_t> WantedRows(const PlannedSlice& slice, int64_t first_row) const;
  // Selects the rows whose tokens the model draws, and says what is to be done to them before.
  std::span<TokenDraw> PlanDraws(Flight& flight);
  // The step is in flight: its requests stay, and sequences go on after tokens that it draws.
  void Launch(Flight& flight);
  // The first one in flight is no more.
  void Land();
  std::span<const float> LogitsOf(const Flight& flight, int64_t index) const;
  std::span<const float> MaximaOf(const Flight& flight, int64_t index) const;
  // Adds the rows of the step to the vectors of their prompts, and ends the requests of which that
  // was the last.
  void Pool(const Flight& flight);
  // Puts the results of the dense layers in place of the vectors that the sinks are to receive.
  void ApplyDense();
  void ComputePromptLogprobs(const Flight& flight);
  // Samples the first token of each sequence that wants one, before the step is committed.
  void SampleFirst(Flight& flight, StepStats& stats);
  void SampleRound(const Flight& flight, int64_t round);
  // Appends what was sampled; goes on with the sequences whose token was the proposed one.
  void Sample(const Flight& flight, StepStats& stats);
  // Proposed tokens of the sequence that this step verified, of which `num_accepted` came.
  void LearnProposed(ActiveSequence& sequence, int64_t num_proposed, int64_t num_accepted);
  // Gives the sequence's constraint to `matchers_`, until whose answer it decodes nothing.
  void Hold(ActiveSequence& sequence);
  // Those whose mask has come decode again. Whether any was held.
  bool ReleaseHeld();
  void LearnSecondsPerToken(double seconds);
  // What the sequence's constraint has taken is charged to its share.
  void ChargeMatcher(ActiveSequence& sequence) const;
  // Appends the sampled token and finishes the sequence where the token ends it. False if there was
  // no token. `entry`: the sequence's index in `updates_`, -1 where it has none yet.
  bool AppendToken(ActiveSequence& sequence, SampleJob& job, Clock::time_point now, int64_t& entry);
  void FailStep(const Flight& flight, const std::string& reason);
  // Those that are in no step any more.
  void ForgetFinished();
  // What is known of the prompt, once a request.
  static void TakePrompt(ActiveRequest& request, Clock::time_point now, SinkUpdate& entry);
  // Reports the step, what was planned since the last one, and the present state to the observer,
  // then `updates_` to the sinks.
  void Report(StepStats stats);

  // Why the token just appended ends the sequence, if it does.
  std::optional<FinishReason> FinishOf(const ActiveSequence& sequence, int32_t token,
                                       std::optional<int32_t>& stop_token) const;
  // Releases its blocks.
  void FinishSequence(ActiveSequence& sequence, FinishReason reason);
  // Finishes the request as kError.
  void FailRequest(ActiveRequest& request, Error error);
  // Releases its sequences' blocks and moves it from `requests_` to `finished_`.
  static RequestStats StatsOf(const ActiveRequest& request, FinishReason reason);
  void FinishRequest(ActiveRequest& request, FinishReason reason);

  const EnginePlan& plan_;
  Model* model_;  // not null
  int64_t num_replaced_ = 0;
  KvCache& cache_;
  ThreadPool& pool_;
  EngineObserver* observer_;
  OnEnd on_end_;
  OnFailedStep on_failed_step_;
  BlockPool blocks_;
  std::unique_ptr<StatePool> states_;  // null where sequences keep none
  CacheListener* const listener_;      // null: nobody hears of the prefix cache
  std::unique_ptr<PrefixIndex> index_;
  BlockTiers* tiers_ = nullptr;        // null: evicted blocks are lost
  bool moves_blocks_ = false;          // StepPlan::moves_blocks of the last plan
  ImageTower* const tower_;            // null: prompts hold no images
  std::unique_ptr<ImagePool> images_;  // likewise
  ImagePool row_ids_{kPromptPart};     // of parts of prompts (Request::rows); it has no rows itself
  Buffer image_memory_;                // F32 [plan.image_rows, row width of the tower]
  // At most one of them; without any nothing is proposed.
  std::unique_ptr<Proposer> proposer_;
  std::unique_ptr<Drafter> drafter_;
  Scheduler scheduler_;
  Sampler sampler_;
  StepBudget step_budget_;  // from the end of a step to that of the next
  MatcherQueue matchers_;
  // Average of the last steps; a matcher's time is charged at this rate.
  double seconds_per_token_ = 0;
  const DrawLimits draw_limits_;
  DrawPlanner draw_planner_;
  std::unordered_map<RequestHandle, std::unique_ptr<ActiveRequest>> requests_;
  std::vector<std::unique_ptr<ActiveRequest>> finished_;  // until nothing refers to them
  std::vector<ScheduledSequence*> removed_;               // by FinishRequest

  const DenseLayers* const dense_;  // null: pooled vectors stay as they are
  Buffer dense_rows_;               // F32 [2, max_num_seqs, widest of the layers]
  Buffer logits_;                   // of all flights, F32, and after them their maxima
  Buffer handed_;  // F32 [max_num_batched_tokens, width], where a drafting head takes hidden rows
  std::vector<Flight> flights_;  // used in turn
  size_t first_flight_ = 0;      // the one that began first
  int num_in_flight_ = 0;
  const Clock::time_point started_ = Clock::now();  // the scheduler's time 0
  Clock::time_point last_end_{};                    // of a step
  StepStats planned_;                               // of plans that were not reported yet
  int64_t num_replayed_ = 0;                        // by the model, that were reported
  double draft_seconds_ = 0;                        // since a step ended

  // The arrays of the step that begins.
  std::vector<int32_t> tokens_, positions_;      // [max_num_batched_tokens]
  std::vector<kernels::AttentionSlice> slices_;  // [groups, max_num_seqs]
  std::vector<int32_t> second_texts_;            // [max_num_seqs]
  std::vector<ImageRow> image_inputs_;           // [max_num_batched_tokens]
  std::vector<int32_t> rope_positions_;          // [axes, max_num_batched_tokens], likewise
  std::vector<float*> image_targets_;            // [plan.image_rows]
  std::vector<StateSlot> state_slots_;           // [max_num_seqs], where sequences keep states
  std::vector<int32_t> adapters_;                // by slice: slot or -1, where adapters are served
  std::vector<Drafter::Job> draft_jobs_;         // [max_proposed_tokens]
  std::vector<Drafter::Hidden> draft_hidden_;    // likewise, of a head
  std::vector<DrawJob> draw_jobs_;               // [max_num_seqs]
  // The arrays of the step that ends.
  std::vector<SampleJob> jobs_;  // [max_num_seqs]
  struct Sampling {
    ActiveSequence* sequence = nullptr;
    FlyingSlice* slice = nullptr;
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
