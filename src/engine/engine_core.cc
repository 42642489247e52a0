#include "engine/engine_core.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/firewall.h"
#include "base/log.h"
#include "engine/adapters.h"
#include "engine/draft_proposer.h"
#include "engine/head_proposer.h"
#include "kernels/block_maxima.h"

namespace sluice {
namespace {

// Runs `run`. Returns the message of the exception that it throws, or "".
template <typename Run>
std::string ReasonOfFailure(const Run& run) noexcept {
  try {
    run();
  } catch (...) {
    return CaughtMessage();
  }
  return "";
}

int64_t MaximaOfRow(const Model& model) {
  return kernels::NumMaxima(model.config().vocab_size);
}

}  // namespace

Result<std::unique_ptr<EngineCore>> EngineCore::Create(const EnginePlan& plan, Model& model,
                                                       KvCache& cache, ThreadPool& pool,
                                                       EngineObserver* observer, OnEnd on_end,
                                                       OnFailedStep on_failed_step, Model* draft,
                                                       const DenseLayers* dense, ImageTower* tower,
                                                       CacheListener* listener, void* draft_cache) {
  const int64_t bytes =
      plan.scheduler.steps_in_flight * plan.max_logit_rows() *
      (model.config().spec.ResultSize() + (model.finds_maxima() ? MaximaOfRow(model) : 0)) *
      int64_t{sizeof(float)};
  ASSIGN_OR_RETURN(Buffer logits, Buffer::Allocate(static_cast<size_t>(bytes), "the logits"));
  std::unique_ptr<Drafter> drafter;
  Buffer handed;
  if (draft != nullptr && plan.draft->is_head()) {
    ASSIGN_OR_RETURN(drafter, HeadProposer::Create(*plan.draft, *draft, pool, draft_cache));
    const auto numbers = static_cast<size_t>(plan.draft->HandedNumbers());
    ASSIGN_OR_RETURN(handed,
                     Buffer::Allocate(numbers * sizeof(float), "the hidden rows of a step"));
  } else if (draft != nullptr) {
    ASSIGN_OR_RETURN(drafter, DraftProposer::Create(*plan.draft, *draft, pool));
  }
  Buffer dense_rows;
  if (dense != nullptr) {
    const int64_t numbers = 2 * plan.scheduler.max_num_seqs * dense->widest();
    ASSIGN_OR_RETURN(dense_rows, Buffer::Allocate(static_cast<size_t>(numbers) * sizeof(float),
                                                  "the vectors between dense layers"));
  }
  Buffer image_memory;
  if (tower != nullptr && !tower->is_on_device()) {
    const int64_t numbers = plan.image_rows * tower->spec().row_width();
    ASSIGN_OR_RETURN(image_memory, Buffer::Allocate(static_cast<size_t>(numbers) * sizeof(float),
                                                    "the rows of images"));
  }
  return std::unique_ptr<EngineCore>(new EngineCore(
      plan, model, cache, pool, observer, std::move(on_end), std::move(on_failed_step),
      std::move(logits), std::move(drafter), std::move(handed), dense, std::move(dense_rows), tower,
      std::move(image_memory), listener));
}

EngineCore::EngineCore(const EnginePlan& plan, Model& model, KvCache& cache, ThreadPool& pool,
                       EngineObserver* observer, OnEnd on_end, OnFailedStep on_failed_step,
                       Buffer logits, std::unique_ptr<Drafter> drafter, Buffer handed,
                       const DenseLayers* dense, Buffer dense_rows, ImageTower* tower,
                       Buffer image_memory, CacheListener* listener)
    : plan_(plan),
      model_(&model),
      cache_(cache),
      pool_(pool),
      observer_(observer),
      on_end_(std::move(on_end)),
      on_failed_step_(std::move(on_failed_step)),
      blocks_(plan.num_blocks),
      states_(plan.num_state_slots > 0 ? std::make_unique<StatePool>(plan.num_state_slots)
                                       : nullptr),
      listener_(listener),
      index_(plan.config.enable_prefix_caching
                 ? std::make_unique<PrefixIndex>(blocks_, plan.scheduler.block_size,
                                                 plan.scheduler.groups, states_.get(), listener)
                 : nullptr),
      tower_(tower),
      images_(tower != nullptr ? std::make_unique<ImagePool>(plan.image_rows) : nullptr),
      image_memory_(std::move(image_memory)),
      proposer_(plan.scheduler.max_proposed_tokens > 0 && drafter == nullptr
                    ? std::make_unique<Proposer>(plan.config.speculation)
                    : nullptr),
      drafter_(std::move(drafter)),
      scheduler_(plan.scheduler, blocks_, index_.get(), states_.get(), images_.get()),
      sampler_(model.config().vocab_size, pool.num_threads()),
      matchers_(MaskWords(model.config().vocab_size), plan.pooling ? 0 : MatcherQueue::kNumThreads),
      draw_limits_(model.draw_limits()),
      draw_planner_(model.config().vocab_size, draw_limits_.words, draw_limits_.top),
      dense_(dense),
      dense_rows_(std::move(dense_rows)),
      logits_(std::move(logits)),
      handed_(std::move(handed)),
      flights_(static_cast<size_t>(plan.scheduler.steps_in_flight)) {
  model_->PrepareLogits(logits_.As<float>());
  step_budget_.Renew(pool.num_threads());
  const int64_t steps_in_flight = plan.scheduler.steps_in_flight;
  CHECK_LE(steps_in_flight, model.steps_in_flight());
  CHECK(steps_in_flight <= 2 || !model.takes_drawn_tokens(),
        "tokens are drawn by the step before, or known");
  const size_t rows = static_cast<size_t>(plan.scheduler.max_num_batched_tokens);
  const size_t sequences = static_cast<size_t>(plan.scheduler.max_num_seqs);
  const size_t logit_rows = static_cast<size_t>(plan.max_logit_rows());
  tokens_.reserve(rows);
  positions_.reserve(rows);
  slices_.reserve(sequences * plan.scheduler.groups.size());
  second_texts_.reserve(sequences);
  image_inputs_.reserve(rows);
  if (states_ != nullptr) state_slots_.reserve(sequences);
  if (tower_ != nullptr) {
    tower_->PrepareThread(pool);
    rope_positions_.reserve(rows * RopePositions::kAxes);
    image_targets_.reserve(static_cast<size_t>(plan.image_rows));
    stored_images_.reserve(static_cast<size_t>(plan.image_rows));
  }
  if (model.lora() != nullptr) adapters_.reserve(sequences);
  for (Flight& flight : flights_) {
    flight.slices.reserve(sequences);
    flight.logit_rows.reserve(logit_rows);
    if (model.draws_tokens()) flight.draws.reserve(logit_rows);
    flight.tops.resize(logit_rows * static_cast<size_t>(draw_limits_.top));
    const auto size = logit_rows * static_cast<size_t>(model.config().spec.ResultSize());
    const auto index = static_cast<size_t>(&flight - flights_.data());
    flight.logits = logits_.As<float>().subspan(index * size, size);
    if (!model.finds_maxima()) continue;
    const size_t maxima = logit_rows * static_cast<size_t>(MaximaOfRow(model));
    flight.maxima = logits_.As<float>().subspan(flights_.size() * size + index * maxima, maxima);
  }
  jobs_.resize(sequences);
  if (model.draws_tokens()) draw_jobs_.reserve(sequences);
  if (drafter_ != nullptr) draft_jobs_.reserve(static_cast<size_t>(plan.draft->max_sequences));
  if (hands_on()) {
    CHECK(steps_in_flight == plan.draft->handed_steps || plan.draft->on_device);
    draft_hidden_.reserve(static_cast<size_t>(plan.draft->max_sequences));
  }
  sampling_.reserve(sequences);
  updates_.reserve(sequences);
  prompt_jobs_.reserve(logit_rows);
  prompt_results_.reserve(logit_rows);
}

EngineCore::~EngineCore() {
  LandAll();
  model_->PrepareLogits({});  // Freed before the model is destroyed.
}

void EngineCore::Add(std::unique_ptr<ActiveRequest> request) {
  ActiveRequest& added = *request;
  requests_.try_emplace(added.handle).first->second = std::move(request);
  int64_t now_us = MicrosecondsAt(Clock::now());
  if (journal_ != nullptr) journal_->OnAdd(now_us, added);
  scheduler_.SetTime(now_us);
  const std::string failure = ReasonOfFailure([&] {
    if (!added.request.images.empty()) HoldImages(added);
    if (added.request.rows != nullptr) HoldRows(added);
    for (const auto& sequence : added.sequences) {
      if (sequence->sampling.matcher != nullptr)
        sequence->sampling.matcher->UseStepBudget(&step_budget_);
      scheduler_.Add(*sequence);
    }
  });
  if (failure.empty()) return;
  // Sequences that are still new are not in the scheduler: finish them here.
  for (const auto& sequence : added.sequences) {
    if (sequence->state == ScheduledSequence::State::kNew) sequence->finish = FinishReason::kError;
  }
  FailRequest(added, {ErrorCode::kInternal, "the request could not be queued: " + failure, ""});
}

void EngineCore::Abort(RequestHandle handle) {
  const auto found = requests_.find(handle);
  if (found == requests_.end()) return;
  LOG_DEBUG("engine", "request {} was aborted after {} tokens", found->second->request.id,
            found->second->num_generated);
  if (journal_ != nullptr) journal_->OnAbort(handle);
  FinishRequest(*found->second, FinishReason::kAbort);
  ForgetFinished();
}

void EngineCore::StopSequence(RequestHandle handle, int sequence) {
  const auto found = requests_.find(handle);
  if (found == requests_.end()) return;
  ActiveRequest& request = *found->second;
  if (sequence < 0 || sequence >= static_cast<int>(request.sequences.size())) return;
  ActiveSequence& stopped = *request.sequences[static_cast<size_t>(sequence)];
  if (stopped.finish) return;
  if (journal_ != nullptr) journal_->OnStop(handle, sequence);
  FinishSequence(stopped, FinishReason::kStop);
  SequenceUpdate update;
  update.sequence = sequence;
  update.finish = FinishReason::kStop;
  const std::shared_ptr<RequestSink> sink = request.request.sink;
  if (request.num_unfinished == 0) FinishRequest(request, FinishReason::kStop);
  sink->OnUpdate(std::move(update));
  ForgetFinished();
}

void EngineCore::AbortAll() {
  if (journal_ != nullptr && has_work()) journal_->OnAbortAll();
  while (!requests_.empty()) {
    ActiveRequest& request = *requests_.begin()->second;
    std::vector<int> open;
    for (const auto& sequence : request.sequences) {
      if (!sequence->finish) open.push_back(sequence->index);
    }
    const std::shared_ptr<RequestSink> sink = request.request.sink;
    FinishRequest(request, FinishReason::kAbort);
    ForgetFinished();
    for (const int index : open) {
      SequenceUpdate update;
      update.sequence = index;
      update.finish = FinishReason::kAbort;
      sink->OnUpdate(std::move(update));
    }
  }
  while (num_in_flight_ > 0) EndStep();
}

void EngineCore::ReplaceModel(Model& next) {
  if (journal_ != nullptr) journal_->OnBreak("the weights were replaced");
  LandAll();
  for (ScheduledSequence* running : scheduler_.running()) {
    auto& sequence = static_cast<ActiveSequence&>(*running);
    ForgetProposals(sequence);
    sequence.pooled.clear();
  }
  scheduler_.PreemptAll();
  ForgetFinished();
  if (index_ != nullptr)
    CHECK(index_->Reset(/*keeps_disk=*/true), "a block is held, but nothing runs");
  model_->PrepareLogits({});
  model_ = &next;
  model_->PrepareLogits(logits_.As<float>());
  num_replayed_ = model_->num_replayed();
}

bool EngineCore::Step() {
  if (journal_ != nullptr) journal_->OnStep();
  while (num_in_flight_ < static_cast<int>(flights_.size()) && !requests_.empty()) {
    const Begun begun = BeginStep();
    if (begun == Begun::kFailed) return false;
    if (begun == Begun::kNothing) break;
  }
  if (num_in_flight_ > 0) return EndStep();
  if (ReleaseHeld()) {
    // Commands that arrive meanwhile wait for at most this time.
    constexpr double kMostSeconds = 0.002;
    if (!replays()) matchers_.WaitForOne(kMostSeconds);
    return true;
  }
  if (moves_blocks_) {
    tiers_->WaitForDisk();
    if (snapshot_tiers_ != nullptr) snapshot_tiers_->WaitForDisk();
    return true;
  }
  FailUnschedulable();
  return false;
}

EngineCore::Begun EngineCore::BeginStep() {
  Flight& flight =
      flights_[(first_flight_ + static_cast<size_t>(num_in_flight_)) % flights_.size()];
  flight.start = Clock::now();
  ReleaseHeld();
  if (proposes() && !replays()) ProposeTokens();
  draft_seconds_ += drafter_ != nullptr ? SecondsBetween(flight.start, Clock::now()) : 0;
  int64_t now_us = MicrosecondsAt(flight.start);
  if (journal_ != nullptr) journal_->OnPlanning(now_us, scheduler_.running());
  scheduler_.SetTime(now_us);
  const StepPlan& plan = scheduler_.Plan();
  if (journal_ != nullptr) journal_->OnPlan(plan);
  planned_.preemptions += static_cast<int64_t>(plan.preempted.size());
  planned_.prefix_queries += plan.prefix_queries;
  planned_.prefix_hits += plan.prefix_hits;
  planned_.tier_queries += plan.tier_queries;
  planned_.tier_hits += plan.tier_hits;
  moves_blocks_ = plan.moves_blocks;
  for (ScheduledSequence* preempted : plan.preempted) {
    auto& sequence = static_cast<ActiveSequence&>(*preempted);
    ForgetProposals(sequence);
    sequence.pooled.clear();
  }
  LogPreemptions(plan);
  if (plan.slices.empty()) return Begun::kNothing;
  for (const PlannedSlice& slice : plan.slices) {
    ActiveRequest& request = *static_cast<ActiveSequence*>(slice.sequence)->request;
    if (!request.first_scheduled) {
      request.first_scheduled = flight.start;
      if (request.request.adapter != nullptr) request.request.adapter->MarkRunning();
    }
  }
  StepInput input = BuildInput(plan, flight);
  const Clock::time_point model_start = Clock::now();
  const std::string failure = ReasonOfFailure([&] {
    EncodeImages(plan, input);
    model_->Begin(pool_, input, cache_, flight.logits.data());
  });
  if (images_ != nullptr) EndImages(plan, !failure.empty());
  flight.model_seconds = SecondsBetween(model_start, Clock::now());
  if (!failure.empty()) {
    FailStep(flight, failure);
    Report({});
    return Begun::kFailed;
  }
  Launch(flight);
  return Begun::kStep;
}

bool EngineCore::EndStep() {
  Flight& flight = flights_[first_flight_];
  const double draft_seconds = std::exchange(draft_seconds_, 0);
  const Clock::time_point model_start = Clock::now();
  flight.is_finished = true;
  const std::string failure = ReasonOfFailure([&] { model_->Finish(pool_); });
  flight.model_seconds += SecondsBetween(model_start, Clock::now());
  if (!failure.empty()) {
    FailStep(flight, failure);
    Land();
    Report({});
    return false;
  }
  StepStats stats;
  stats.in_flight = num_in_flight_;
  int64_t num_tokens = 0;
  for (FlyingSlice& slice : flight.slices) slice.is_wanted = Scheduler::IsWanted(slice);
  if (!plan_.pooling) SampleFirst(flight, stats);
  for (const FlyingSlice& slice : flight.slices) {
    num_tokens += slice.num_tokens;
    if (slice.is_late)
      scheduler_.CommitAllButLast(slice);
    else
      scheduler_.Commit(slice);
    const bool decodes = slice.samples && slice.num_tokens - slice.num_proposed == 1 &&
                         slice.first >= slice.sequence->num_prompt_tokens;
    if (!decodes) stats.prompt_tokens += slice.num_tokens;
    stats.new_prompt_tokens += CountPrompt(slice);
  }
  if (plan_.pooling) {
    Pool(flight);
  } else {
    ComputePromptLogprobs(flight);
    Sample(flight, stats);
  }
  const Clock::time_point now = Clock::now();
  stats.step_seconds = SecondsBetween(std::max(flight.start, last_end_), now);
  stats.model_seconds = std::min(flight.model_seconds, stats.step_seconds);
  last_end_ = now;
  step_budget_.Renew(pool_.num_threads());
  LearnSecondsPerToken(stats.step_seconds / static_cast<double>(std::max<int64_t>(1, num_tokens)));
  const double seconds = stats.step_seconds - draft_seconds;
  if (drafter_ != nullptr && stats.prompt_tokens == 0 && seconds > 0)
    drafter_->LearnStep(std::ssize(flight.slices), stats.draft_tokens, seconds);
  if (hands_on()) HandOn(flight);
  Land();
  Report(stats);
  return true;
}

// Counts the slice's prompt tokens that were not counted before. If a preempted sequence resumes
// after tokens that other sequences have computed meanwhile, these tokens count as computed by this
// sequence.
int64_t EngineCore::CountPrompt(const FlyingSlice& slice) {
  ActiveSequence& sequence = slice.active();
  const int64_t counted = std::max(sequence.num_prompt_counted, sequence.cached_tokens);
  const int64_t end = std::min(slice.first + slice.num_tokens, sequence.num_prompt_tokens);
  sequence.num_prompt_counted = std::max(counted, end);
  return sequence.num_prompt_counted - counted;
}

// The scheduler's contract excludes this case. If it occurs anyway, no request may hang.
void EngineCore::FailUnschedulable() {
  if (journal_ != nullptr) journal_->OnBreak("no sequence could be scheduled");
  LOG_ERROR("engine", "{} sequences wait, but none can be scheduled; their requests fail",
            scheduler_.num_waiting());
  while (!requests_.empty()) {
    FailRequest(*requests_.begin()->second,
                {ErrorCode::kInternal, "the request could not be scheduled", ""});
  }
  on_failed_step_();
  Report({});
}

bool EngineCore::FailAll(const std::string& reason) noexcept {
  if (journal_ != nullptr) journal_->OnBreak("all requests failed");
  const auto fail = [&] {
    while (!requests_.empty()) {
      FailRequest(*requests_.begin()->second,
                  {ErrorCode::kInternal, "the step failed: " + reason, ""});
    }
  };
  // The first attempt may fail for lack of memory. Failing some requests frees memory.
  const bool are_failed = RunGuarded("engine", "to fail all requests", fail) ||
                          RunGuarded("engine", "to fail all requests once more", fail);
  LandAll();
  on_failed_step_();
  return RunGuarded("engine", "to report failed requests", [&] { Report({}); }) && are_failed &&
         scheduler_.CheckInvariant().has_value();
}

void EngineCore::LandAll() noexcept {
  while (num_in_flight_ > 0) {
    if (!flights_[first_flight_].is_finished) ReasonOfFailure([&] { model_->Finish(pool_); });
    Land();
  }
}

void EngineCore::Launch(Flight& flight) {
  ++num_in_flight_;
  flight.is_finished = false;
  // Draft tokens, and some draws, require that the sequence's last token is known.
  const bool keeps_tokens = flights_.size() > 1 && model_->takes_drawn_tokens() && !proposes();
  for (FlyingSlice& slice : flight.slices) {
    ActiveSequence& sequence = slice.active();
    ++sequence.request->num_slices_in_flight;
    slice.is_awaited = keeps_tokens && slice.samples && !flight.draws.empty() &&
                       flight.draws[static_cast<size_t>(slice.first_logit)].is_wanted &&
                       sequence.length() + 1 < sequence.max_total_tokens &&
                       !DrawNeedsHistory(sequence.sampling);
    if (!slice.is_awaited) continue;
    ++sequence.num_drawn;
    sequence.last_draw = static_cast<int32_t>(slice.first_logit);
  }
}

void EngineCore::Land() {
  Flight& flight = flights_[first_flight_];
  for (const FlyingSlice& slice : flight.slices) --slice.active().request->num_slices_in_flight;
  flight.slices.clear();
  first_flight_ = (first_flight_ + 1) % flights_.size();
  --num_in_flight_;
}

void EngineCore::ForgetFinished() {
  std::erase_if(finished_, [](const auto& request) { return request->num_slices_in_flight == 0; });
}

void EngineCore::ForgetProposals(ActiveSequence& sequence) {
  sequence.proposals = {};
  sequence.draft = DraftSequence();
}

void EngineCore::ProposeTokens() {
  const int64_t num_running = scheduler_.num_running();
  int64_t room = plan_.scheduler.max_proposed_tokens - num_running;
  if (drafter_ != nullptr && num_running > plan_.draft->max_sequences) room = 0;
  int64_t left = num_running;
  // Draft models are slow: propose only for sequences that the step decodes.
  const int64_t most_jobs = scheduler_.MostDecodes();
  draft_jobs_.clear();
  for (ScheduledSequence* scheduled : scheduler_.running()) {
    auto& sequence = static_cast<ActiveSequence&>(*scheduled);
    const auto num_tokens = static_cast<int64_t>(sequence.tokens.size());
    const int64_t share = room > 0 ? std::max<int64_t>(1, room / left) : 0;
    --left;
    if (sequence.is_in_flight()) continue;  // the sequence keeps its earlier proposals
    sequence.proposed.clear();
    if (sequence.is_held) continue;
    if (share == 0) ForgetProposals(sequence);
    const Request& asked = sequence.request->request;
    if (share == 0 || sequence.num_computed != num_tokens - 1) continue;
    const int64_t most = std::min(share, sequence.max_total_tokens - num_tokens - 1);
    if (drafter_ != nullptr) {
      if (most < 1 || std::ssize(draft_jobs_) == most_jobs) continue;
      draft_jobs_.push_back({.history = {sequence.tokens, sequence.num_prompt_tokens},
                             .sampling = &sequence.sampling,
                             .cache_salt = sequence.cache_salt,
                             .most = std::min<int64_t>(most, plan_.config.draft.num_tokens),
                             .left = sequence.max_total_tokens - num_tokens,
                             .state = &sequence.draft,
                             .proposal = &sequence.proposed});
      room -= draft_jobs_.back().most;
      continue;
    }
    proposer_->Propose(sequence.tokens, sequence.max_total_tokens, asked.cache_salt.empty(), most,
                       sequence.proposals, sequence.proposed);
    room -= static_cast<int64_t>(sequence.proposed.size());
  }
  if (!draft_jobs_.empty()) drafter_->Propose(most_jobs, draft_jobs_);
}

std::span<float> EngineCore::HandedOf(const Flight& flight) const {
  const std::span<float> all = handed_.As<float>();
  const size_t of_step = all.size() / flights_.size();
  return all.subspan(static_cast<size_t>(&flight - flights_.data()) * of_step, of_step);
}

void EngineCore::HandOn(const Flight& flight) {
  // Nothing is proposed if running sequences use all rows, or are too many for the head.
  const int64_t most = plan_.draft->max_sequences;
  if (scheduler_.num_running() > most ||
      scheduler_.num_running() >= plan_.scheduler.max_proposed_tokens) {
    return;
  }
  draft_hidden_.clear();
  const bool on_device = plan_.draft->on_device;
  const DeviceHidden step = on_device ? model_->handed_rows() : DeviceHidden();
  int64_t first_row = 0;
  for (const FlyingSlice& slice : flight.slices) {
    const int64_t row = first_row;
    first_row += slice.num_tokens;
    ActiveSequence& sequence = slice.active();
    if (!slice.is_wanted || sequence.finish || std::ssize(draft_hidden_) == most) continue;
    const int64_t end = std::min(slice.first + slice.num_tokens, sequence.num_computed);
    draft_hidden_.push_back(
        {.tokens = sequence.tokens,
         .cache_salt = sequence.cache_salt,
         .sampling = &sequence.sampling,
         .left = sequence.max_total_tokens - std::ssize(sequence.tokens),
         .first = slice.first,
         .count = std::max<int64_t>(0, end - slice.first),
         .rows = on_device ? nullptr
                           : HandedOf(flight).data() + row * plan_.draft->head().target_width(),
         .step = step,
         .step_row = row,
         .state = &sequence.draft});
  }
  drafter_->Take(std::max<int64_t>(1, scheduler_.num_running()), draft_hidden_);
}

void EngineCore::LogPreemptions(const StepPlan& plan) const {
  const auto first = plan.preempted.begin() + plan.num_preempted_for_others;
  for (const ScheduledSequence* preempted : std::span(first, plan.preempted.end())) {
    const auto& sequence = static_cast<const ActiveSequence&>(*preempted);
    LOG_INFO("engine",
             "request {} was preempted for lack of KV blocks: {} tokens will be computed again, {} "
             "preemptions "
             "so far; a larger KV cache or a smaller max_num_seqs avoids this",
             sequence.request->request.id, sequence.tokens.size(), scheduler_.num_preemptions());
  }
}

std::span<const float> EngineCore::LogitsOf(const Flight& flight, int64_t index) const {
  const auto size = static_cast<size_t>(model_->config().spec.ResultSize());
  return flight.logits.subspan(static_cast<size_t>(index) * size, size);
}

std::span<const float> EngineCore::MaximaOf(const Flight& flight, int64_t index) const {
  if (flight.maxima.empty()) return {};
  const auto size = static_cast<size_t>(MaximaOfRow(*model_));
  return flight.maxima.subspan(static_cast<size_t>(index) * size, size);
}

void EngineCore::ComputePromptLogprobs(const Flight& flight) {
  prompt_jobs_.clear();
  prompt_results_.clear();
  for (const FlyingSlice& slice : flight.slices) {
    if (!slice.all_rows || !slice.is_wanted) continue;
    ActiveSequence& sequence = slice.active();
    ActiveRequest& request = *sequence.request;
    for (int64_t row = 0; row < slice.num_tokens; ++row) {
      // The token whose logprob is computed from this row.
      const int64_t next = slice.first + row + 1;
      if (next >= sequence.num_prompt_tokens) break;
      prompt_jobs_.push_back({LogitsOf(flight, slice.first_logit + row),
                              sequence.tokens[static_cast<size_t>(next)],
                              *request.request.sampling.prompt_logprobs,
                              {},
                              {}});
      prompt_results_.push_back(&request.prompt.logprobs[static_cast<size_t>(next)]);
    }
    if (slice.first + slice.num_tokens >= sequence.num_prompt_tokens - 1)
      sequence.wants_all_rows = false;
  }
  if (prompt_jobs_.empty()) return;
  sampler_.PromptLogprobs(pool_, prompt_jobs_);
  size_t job = 0;
  for (const FlyingSlice& slice : flight.slices) {
    if (!slice.all_rows || !slice.is_wanted) continue;
    ActiveRequest& request = *slice.active().request;
    const int64_t rows =
        std::min(slice.num_tokens, slice.sequence->num_prompt_tokens - 1 - slice.first);
    for (int64_t row = 0; row < rows; ++row, ++job) {
      if (!prompt_jobs_[job].error.empty()) {
        FailRequest(request, {ErrorCode::kInternal, std::string(prompt_jobs_[job].error), ""});
      } else {
        *prompt_results_[job] = std::move(prompt_jobs_[job].logprobs);
      }
    }
  }
}

std::optional<FinishReason> EngineCore::FinishOf(const ActiveSequence& sequence, int32_t token,
                                                 std::optional<int32_t>& stop_token) const {
  const SamplingParams& params = *sequence.sampling.params;
  const auto contains = [token](std::span<const int32_t> ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  const bool has_min_tokens = sequence.num_output_tokens() > params.min_tokens;
  // A constraint allows an end token only when the answer is complete.
  if (has_min_tokens || sequence.sampling.matcher != nullptr) {
    if (!params.ignore_eos && contains(sequence.request->end_tokens)) return FinishReason::kStop;
  }
  if (has_min_tokens) {
    if (contains(params.stop_token_ids)) {
      stop_token = token;
      return FinishReason::kStop;
    }
  }
  if (static_cast<int64_t>(sequence.tokens.size()) >= sequence.max_total_tokens)
    return FinishReason::kLength;
  return std::nullopt;
}

bool EngineCore::AppendToken(ActiveSequence& sequence, SampleJob& job, Clock::time_point now,
                             int64_t& entry_index) {
  ActiveRequest& request = *sequence.request;
  if (request.ended) return false;
  if (!job.error.empty()) {
    const ErrorCode code =
        job.is_request_error ? ErrorCode::kInvalidArgument : ErrorCode::kInternal;
    FailRequest(request, {code, std::string(job.error), ""});
    return false;
  }
  const bool is_first = entry_index < 0;
  if (is_first) {
    entry_index = static_cast<int64_t>(updates_.size());
    updates_.emplace_back().sink = request.request.sink;
  }
  SinkUpdate& entry = updates_[static_cast<size_t>(entry_index)];
  sequence.tokens.push_back(job.token);
  ++request.num_generated;
  if (observer_ != nullptr && is_first) {
    if (sequence.num_output_tokens() == 1)
      observer_->OnFirstToken(SecondsBetween(request.request.arrival, now));
    else
      observer_->OnInterToken(SecondsBetween(sequence.last_update, now));
  }
  if (!request.first_token) request.first_token = now;
  request.last_token = now;
  sequence.last_update = now;

  SequenceUpdate& update = entry.update;
  update.sequence = sequence.index;
  update.weights = num_replaced_;
  update.tokens.push_back(job.token);
  if (sequence.sampling.params->logprobs) update.logprobs.push_back(std::move(job.logprobs));
  update.finish = FinishOf(sequence, job.token, update.stop_token);

  if (!request.prompt_sent) TakePrompt(request, now, entry);
  if (update.finish) {
    FinishSequence(sequence, *update.finish);
    if (request.num_unfinished == 0) FinishRequest(request, *update.finish);
  }
  return true;
}

void EngineCore::TakePrompt(ActiveRequest& request, Clock::time_point now, SinkUpdate& entry) {
  request.prompt_sent = true;
  request.prompt.cached_tokens = request.sequences.front()->cached_tokens;
  request.prompt.queue_seconds =
      SecondsBetween(request.request.arrival, request.first_scheduled.value_or(now));
  entry.prompt = std::move(request.prompt);
}

void EngineCore::Report(StepStats stats) {
  ForgetFinished();
  const StepStats planned = std::exchange(planned_, {});
  if (observer_ != nullptr) {
    stats.preemptions = planned.preemptions;
    stats.prefix_queries = planned.prefix_queries;
    stats.prefix_hits = planned.prefix_hits;
    stats.tier_queries = planned.tier_queries;
    stats.tier_hits = planned.tier_hits;
    stats.replayed = model_->num_replayed() - std::exchange(num_replayed_, model_->num_replayed());
    stats.running = scheduler_.num_running();
    stats.waiting = scheduler_.num_waiting();
    stats.used_blocks = blocks_.num_held();
    stats.total_blocks = blocks_.num_blocks();
    if (states_ != nullptr) {
      stats.held_states = states_->num_held();
      stats.kept_states = states_->num_kept();
      stats.total_states = states_->num_slots();
    }
    RunGuarded("engine", "to count a step", [&] { observer_->OnStep(stats); });
  }
  for (SinkUpdate& entry : updates_) {
    RunGuarded("engine", "to report to a request", [&] {
      if (entry.prompt) entry.sink->OnPrompt(*std::move(entry.prompt));
      if (entry.error)
        entry.sink->OnError(*std::move(entry.error));
      else if (entry.pooled)
        entry.sink->OnPooled(*std::move(entry.pooled));
      else
        entry.sink->OnUpdate(std::move(entry.update));
    });
  }
  updates_.clear();
}

void EngineCore::FailStep(const Flight& flight, const std::string& reason) {
  if (journal_ != nullptr) journal_->OnStepFailed(reason);
  LOG_ERROR("engine", "a step of {} sequences failed: {}", flight.slices.size(), reason);
  for (const FlyingSlice& slice : flight.slices) {
    if (!Scheduler::IsWanted(slice)) continue;
    FailRequest(*slice.active().request, {ErrorCode::kInternal, "the step failed: " + reason, ""});
  }
  on_failed_step_();
}

void EngineCore::FinishSequence(ActiveSequence& sequence, FinishReason reason) {
  sequence.finish = reason;
  if (proposer_ != nullptr && sequence.request->request.cache_salt.empty()) {
    proposer_->Remember(
        std::span(sequence.tokens).subspan(static_cast<size_t>(sequence.num_prompt_tokens)));
  }
  sequence.draft.blocks.Clear();
  scheduler_.Remove(sequence);
  --sequence.request->num_unfinished;
}

void EngineCore::FailRequest(ActiveRequest& request, Error error) {
  if (request.ended) return;
  SinkUpdate& entry = updates_.emplace_back();
  entry.sink = request.request.sink;
  entry.error = std::move(error);
  FinishRequest(request, FinishReason::kError);
}

RequestStats EngineCore::StatsOf(const ActiveRequest& request, FinishReason reason) {
  const Clock::time_point now = Clock::now();
  const auto between = [](const auto& from, const auto& to) {
    return from && to ? SecondsBetween(*from, *to) : 0;
  };
  const Clock::time_point arrival = request.request.arrival;
  RequestStats stats;
  stats.reason = reason;
  stats.prompt_tokens = static_cast<int64_t>(request.request.prompt.size());
  stats.cached_tokens = request.sequences.front()->cached_tokens;
  stats.generated_tokens = request.num_generated;
  stats.max_tokens = request.request.sampling.max_tokens;
  stats.sequences.reserve(request.sequences.size());
  for (const auto& sequence : request.sequences) {
    stats.sequences.push_back(
        {*sequence->finish, sequence->num_output_tokens(), sequence->num_preemptions});
  }
  stats.queue_seconds = SecondsBetween(arrival, request.first_scheduled.value_or(now));
  stats.prefill_seconds = between(request.first_scheduled, request.first_token);
  stats.decode_seconds = between(request.first_token, request.last_token);
  stats.inference_seconds = between(request.first_scheduled, request.last_token);
  const bool was_cut = reason == FinishReason::kAbort || reason == FinishReason::kError;
  stats.total_seconds = SecondsBetween(arrival, was_cut ? now : request.last_token.value_or(now));
  if (request.first_token)
    stats.first_token_seconds = SecondsBetween(arrival, *request.first_token);
  return stats;
}

void EngineCore::FinishRequest(ActiveRequest& request, FinishReason reason) {
  // Makes calls that may throw first, so that a request ends completely or not at all.
  removed_.clear();
  removed_.reserve(request.sequences.size());
  finished_.reserve(finished_.size() + 1);
  request.ended = true;
  for (const auto& sequence : request.sequences) {
    if (!sequence->finish) removed_.push_back(sequence.get());
    sequence->finish = sequence->finish.value_or(reason);
    sequence->draft.blocks.Clear();
  }
  scheduler_.Remove(removed_);
  if (request.holds_images) ReleaseImages(request);
  ReleaseRows(request);
  request.num_unfinished = 0;
  RunGuarded("engine", "to count a request", [&] {
    const RequestStats stats = StatsOf(request, reason);
    const bool is_counted = request.request.sink->OnStats(stats, observer_);
    if (observer_ != nullptr && !is_counted) observer_->OnFinished(stats);
  });
  const auto found = requests_.find(request.handle);
  finished_.push_back(std::move(found->second));
  requests_.erase(found);
  if (on_end_) on_end_(request);
}

void EngineCore::ReportIdle() {
  Report({});
}

}  // namespace sluice
