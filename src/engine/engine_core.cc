#include "engine/engine_core.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/adapters.h"

namespace sluice {

Result<std::unique_ptr<EngineCore>> EngineCore::Create(const EnginePlan& plan, Model& model,
                                                       KvCache& cache, ThreadPool& pool,
                                                       EngineObserver* observer, OnEnd on_end,
                                                       OnFailedStep on_failed_step) {
  const int64_t bytes =
      plan.max_logit_rows() * model.config().spec.ResultSize() * int64_t{sizeof(float)};
  ASSIGN_OR_RETURN(Buffer logits, Buffer::Allocate(static_cast<size_t>(bytes), "the logits"));
  return std::unique_ptr<EngineCore>(new EngineCore(plan, model, cache, pool, observer,
                                                    std::move(on_end), std::move(on_failed_step),
                                                    std::move(logits)));
}

EngineCore::EngineCore(const EnginePlan& plan, Model& model, KvCache& cache, ThreadPool& pool,
                       EngineObserver* observer, OnEnd on_end, OnFailedStep on_failed_step,
                       Buffer logits)
    : plan_(plan),
      model_(model),
      cache_(cache),
      pool_(pool),
      observer_(observer),
      on_end_(std::move(on_end)),
      on_failed_step_(std::move(on_failed_step)),
      blocks_(plan.num_blocks),
      index_(plan.config.enable_prefix_caching
                 ? std::make_unique<PrefixIndex>(blocks_, plan.scheduler.block_size,
                                                 plan.scheduler.groups)
                 : nullptr),
      proposer_(plan.scheduler.max_proposed_tokens > 0
                    ? std::make_unique<Proposer>(plan.config.speculation)
                    : nullptr),
      scheduler_(plan.scheduler, blocks_, index_.get()),
      sampler_(model.config().vocab_size, pool.num_threads()),
      logits_(std::move(logits)) {
  model_.PrepareLogits(logits_.As<float>());
  const size_t rows = static_cast<size_t>(plan.scheduler.max_num_batched_tokens);
  const size_t sequences = static_cast<size_t>(plan.scheduler.max_num_seqs);
  const size_t logit_rows = static_cast<size_t>(plan.max_logit_rows());
  tokens_.reserve(rows);
  positions_.reserve(rows);
  slices_.reserve(sequences * plan.scheduler.groups.size());
  second_texts_.reserve(sequences);
  first_logit_.reserve(sequences);
  if (model.lora() != nullptr) adapters_.reserve(sequences);
  logit_rows_.reserve(logit_rows);
  if (model.draws_tokens()) draws_.reserve(logit_rows);
  jobs_.resize(sequences);
  sampling_.reserve(sequences);
  updates_.reserve(sequences);
  prompt_jobs_.reserve(logit_rows);
  prompt_results_.reserve(logit_rows);
}

EngineCore::~EngineCore() {
  model_.PrepareLogits({});  // Their memory is freed before the model.
}

void EngineCore::Add(std::unique_ptr<ActiveRequest> request) {
  ActiveRequest& added = *request;
  requests_.emplace(added.handle, std::move(request));
  for (const auto& sequence : added.sequences) scheduler_.Add(*sequence);
}

void EngineCore::Abort(RequestHandle handle) {
  const auto found = requests_.find(handle);
  if (found == requests_.end()) return;
  LOG_DEBUG("engine", "request {} was aborted after {} tokens", found->second->request.id,
            found->second->num_generated);
  FinishRequest(*found->second, FinishReason::kAbort);
  finished_.clear();
}

void EngineCore::StopSequence(RequestHandle handle, int sequence) {
  const auto found = requests_.find(handle);
  if (found == requests_.end()) return;
  ActiveRequest& request = *found->second;
  if (sequence < 0 || sequence >= static_cast<int>(request.sequences.size())) return;
  ActiveSequence& stopped = *request.sequences[static_cast<size_t>(sequence)];
  if (stopped.finished) return;
  FinishSequence(stopped);
  SequenceUpdate update;
  update.sequence = sequence;
  update.finish = FinishReason::kStop;
  const std::shared_ptr<RequestSink> sink = request.request.sink;
  if (request.num_unfinished == 0) FinishRequest(request, FinishReason::kStop);
  sink->OnUpdate(std::move(update));
  finished_.clear();
}

void EngineCore::AbortAll() {
  while (!requests_.empty()) {
    ActiveRequest& request = *requests_.begin()->second;
    std::vector<int> open;
    for (const auto& sequence : request.sequences) {
      if (!sequence->finished) open.push_back(sequence->index);
    }
    const std::shared_ptr<RequestSink> sink = request.request.sink;
    FinishRequest(request, FinishReason::kAbort);
    finished_.clear();
    for (const int index : open) {
      SequenceUpdate update;
      update.sequence = index;
      update.finish = FinishReason::kAbort;
      sink->OnUpdate(std::move(update));
    }
  }
}

bool EngineCore::ResetPrefixCache() {
  return index_ == nullptr || index_->Reset();
}

bool EngineCore::Step() {
  const Clock::time_point start = Clock::now();
  if (proposer_ != nullptr) ProposeTokens();
  const StepPlan& plan = scheduler_.Plan();
  for (ScheduledSequence* preempted : plan.preempted) {
    auto& sequence = static_cast<ActiveSequence&>(*preempted);
    sequence.proposals = {};
    sequence.pooled.clear();
  }
  LogPreemptions(plan);
  if (plan.slices.empty()) {
    // The scheduler's contract excludes it; should it be broken all the same, no request may hang.
    LOG_ERROR("engine", "{} sequences wait, but none can be scheduled; their requests fail",
              scheduler_.num_waiting());
    while (!requests_.empty()) {
      FailRequest(*requests_.begin()->second,
                  {ErrorCode::kInternal, "the request could not be scheduled", ""});
    }
    on_failed_step_();
    Report(StatsOf(plan));
    return false;
  }
  for (const PlannedSlice& slice : plan.slices) {
    ActiveRequest& request = *static_cast<ActiveSequence*>(slice.sequence)->request;
    if (!request.first_scheduled) {
      request.first_scheduled = start;
      if (request.request.adapter != nullptr) request.request.adapter->MarkRunning();
    }
  }
  const StepInput input = BuildInput(plan);
  const Clock::time_point model_start = Clock::now();
  try {
    model_.Forward(pool_, input, cache_, logits_.As<float>().data());
  } catch (const std::exception& exception) {
    FailStep(plan, exception.what());
    return false;
  } catch (...) {
    FailStep(plan, "unknown exception");
    return false;
  }
  const Clock::time_point model_end = Clock::now();
  scheduler_.Commit();
  if (!plan_.pooling) ComputePromptLogprobs(plan);

  StepStats stats = StatsOf(plan);
  for (const PlannedSlice& slice : plan.slices) {
    const bool decodes = slice.samples && slice.num_tokens - slice.num_proposed == 1 &&
                         slice.first >= slice.sequence->num_prompt_tokens;
    if (!decodes) stats.prompt_tokens += slice.num_tokens;
  }
  if (plan_.pooling) {
    Pool(plan);
  } else {
    Sample(plan, stats);
  }
  stats.model_seconds = SecondsBetween(model_start, model_end);
  stats.step_seconds = SecondsBetween(start, Clock::now());
  Report(stats);
  return true;
}

void EngineCore::ProposeTokens() {
  const int64_t num_running = scheduler_.num_running();
  int64_t room = plan_.scheduler.max_proposed_tokens - num_running;
  int64_t left = num_running;
  for (ScheduledSequence* scheduled : scheduler_.running()) {
    auto& sequence = static_cast<ActiveSequence&>(*scheduled);
    const auto num_tokens = static_cast<int64_t>(sequence.tokens.size());
    sequence.proposed.clear();
    const int64_t share = room > 0 ? std::max<int64_t>(1, room / left) : 0;
    --left;
    if (share == 0) sequence.proposals = {};
    const Request& asked = sequence.request->request;
    if (share == 0 || sequence.num_computed != num_tokens - 1) continue;
    proposer_->Propose(sequence.tokens, sequence.max_total_tokens, asked.cache_salt.empty(),
                       std::min(share, sequence.max_total_tokens - num_tokens - 1),
                       sequence.proposals, sequence.proposed);
    room -= static_cast<int64_t>(sequence.proposed.size());
  }
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

StepInput EngineCore::BuildInput(const StepPlan& plan) {
  tokens_.clear();
  positions_.clear();
  slices_.clear();
  second_texts_.clear();
  logit_rows_.clear();
  first_logit_.clear();
  for (const PlannedSlice& slice : plan.slices) {
    const ScheduledSequence& sequence = *slice.sequence;
    const int64_t first_row = static_cast<int64_t>(tokens_.size());
    slices_.push_back({first_row, static_cast<int32_t>(slice.num_tokens),
                       static_cast<int32_t>(slice.first), sequence.blocks[0].data()});
    if (plan_.pooling && plan_.pooling->num_token_types > 1) {
      const Request& request = static_cast<const ActiveSequence&>(sequence).request->request;
      const auto length = static_cast<int32_t>(sequence.tokens.size());
      second_texts_.push_back(request.second_text.value_or(length));
    }
    const auto begin = sequence.tokens.begin() + slice.first;
    tokens_.insert(tokens_.end(), begin, begin + slice.num_tokens - slice.num_proposed);
    tokens_.insert(tokens_.end(), sequence.proposed.begin(),
                   sequence.proposed.begin() + slice.num_proposed);
    for (int64_t i = 0; i < slice.num_tokens; ++i)
      positions_.push_back(static_cast<int32_t>(slice.first + i));
    first_logit_.push_back(static_cast<int32_t>(logit_rows_.size()));
    const auto [begin_row, end_row] = WantedRows(slice, first_row);
    for (int64_t row = begin_row; row < end_row; ++row)
      logit_rows_.push_back(static_cast<int32_t>(row));
  }
  const auto num_groups = static_cast<int64_t>(plan_.scheduler.groups.size());
  for (int64_t group = 1; group < num_groups; ++group) {
    for (size_t i = 0; i < plan.slices.size(); ++i) {
      kernels::AttentionSlice slice = slices_[i];
      slice.block_table = plan.slices[i].sequence->blocks[group].data();
      slices_.push_back(slice);
    }
  }
  return {tokens_,    positions_,      slices_,       logit_rows_,
          num_groups, PlanDraws(plan), second_texts_, AdaptersOf(plan)};
}

std::span<const int32_t> EngineCore::AdaptersOf(const StepPlan& plan) {
  adapters_.clear();
  if (model_.lora() == nullptr) return {};
  bool any = false;
  for (const PlannedSlice& slice : plan.slices) {
    const Request& request = static_cast<const ActiveSequence*>(slice.sequence)->request->request;
    adapters_.push_back(request.adapter == nullptr ? -1 : request.adapter->slot());
    any = any || request.adapter != nullptr;
  }
  return any ? std::span<const int32_t>(adapters_) : std::span<const int32_t>();
}

std::pair<int64_t, int64_t> EngineCore::WantedRows(const PlannedSlice& slice,
                                                   int64_t first_row) const {
  const int64_t end_row = first_row + slice.num_tokens;
  if (slice.all_rows) return {first_row, end_row};
  if (plan_.pooling && plan_.pooling->method == PoolingMethod::kCls)
    return {first_row, first_row + (slice.first == 0 ? 1 : 0)};
  return {slice.samples ? end_row - 1 - slice.num_proposed : end_row, end_row};
}

std::span<TokenDraw> EngineCore::PlanDraws(const StepPlan& plan) {
  draws_.clear();
  if (!model_.draws_tokens()) return {};
  draws_.resize(logit_rows_.size());
  bool any = false;
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const PlannedSlice& slice = plan.slices[i];
    // Whether the next row is drawn from is known once this one is.
    if (!slice.samples || slice.all_rows || slice.num_proposed > 0) continue;
    const auto& sequence = static_cast<const ActiveSequence&>(*slice.sequence);
    const TokenHistory history{sequence.tokens, sequence.num_prompt_tokens};
    if (!IsPlainDraw(sequence.sampling, history)) continue;
    TokenDraw& draw = draws_[static_cast<size_t>(first_logit_[i])];
    draw.is_wanted = true;
    draw.settings = PlainDraw(sequence.sampling, history);
    any = true;
  }
  return any ? std::span(draws_) : std::span<TokenDraw>();
}

std::span<const float> EngineCore::LogitsOf(int64_t index) const {
  const auto size = static_cast<size_t>(model_.config().spec.ResultSize());
  return logits_.As<float>().subspan(static_cast<size_t>(index) * size, size);
}

void EngineCore::Pool(const StepPlan& plan) {
  const Clock::time_point now = Clock::now();
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const PlannedSlice& slice = plan.slices[i];
    auto& sequence = static_cast<ActiveSequence&>(*slice.sequence);
    ActiveRequest& request = *sequence.request;
    if (request.ended) continue;
    // Row by row in the order of their positions: the sum does not depend on how they came.
    std::vector<double>& pooled = sequence.pooled;
    const auto [begin, end] = WantedRows(slice, 0);
    for (int64_t row = 0; row < end - begin; ++row) {
      const std::span<const float> result = LogitsOf(first_logit_[i] + row);
      pooled.resize(result.size());
      std::transform(result.begin(), result.end(), pooled.begin(), pooled.begin(), std::plus<>());
    }
    if (!slice.samples) continue;
    const auto count = static_cast<double>(
        plan_.pooling->method == PoolingMethod::kMean ? sequence.tokens.size() : size_t{1});
    SinkUpdate& entry = updates_.emplace_back();
    entry.sink = request.request.sink;
    entry.pooled.emplace().reserve(pooled.size());
    for (const double sum : pooled) entry.pooled->push_back(static_cast<float>(sum / count));
    request.first_token = request.last_token = now;
    TakePrompt(request, now, entry);
    FinishRequest(request, FinishReason::kStop);
  }
}

void EngineCore::ComputePromptLogprobs(const StepPlan& plan) {
  prompt_jobs_.clear();
  prompt_results_.clear();
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const PlannedSlice& slice = plan.slices[i];
    if (!slice.all_rows) continue;
    auto& sequence = static_cast<ActiveSequence&>(*slice.sequence);
    ActiveRequest& request = *sequence.request;
    for (int64_t row = 0; row < slice.num_tokens; ++row) {
      const int64_t next = slice.first + row + 1;  // the token whose logprob this row gives
      if (next >= sequence.num_prompt_tokens) break;
      prompt_jobs_.push_back({LogitsOf(first_logit_[i] + row),
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
  for (const PlannedSlice& slice : plan.slices) {
    if (!slice.all_rows) continue;
    ActiveRequest& request = *static_cast<ActiveSequence*>(slice.sequence)->request;
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

void EngineCore::Sample(const StepPlan& plan, StepStats& stats) {
  sampling_.clear();
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const PlannedSlice& slice = plan.slices[i];
    auto& sequence = static_cast<ActiveSequence&>(*slice.sequence);
    if (!slice.samples || sequence.request->ended) continue;
    SampleJob& job = jobs_[sampling_.size()];
    job.is_drawn = false;
    if (!draws_.empty()) {
      const TokenDraw& draw = draws_[static_cast<size_t>(first_logit_[i])];
      if (draw.is_wanted) SetDrawn(job, draw.token, draw.error);
    }
    const int64_t logits = first_logit_[i] + (slice.all_rows ? slice.num_tokens - 1 : 0);
    sampling_.push_back({&sequence, logits, slice.num_proposed});
    stats.drafts += slice.num_proposed > 0 ? 1 : 0;
    stats.draft_tokens += slice.num_proposed;
  }
  // Tokens that sequences sample one after the other in this step.
  for (int64_t round = 0; !sampling_.empty(); ++round) {
    for (size_t i = 0; i < sampling_.size(); ++i) {
      const ActiveSequence& sequence = *sampling_[i].sequence;
      SampleJob& job = jobs_[i];
      job.logits = LogitsOf(sampling_[i].logits + round);
      job.sequence = &sampling_[i].sequence->sampling;
      job.history = {sequence.tokens, sequence.num_prompt_tokens};
      if (round > 0) job.is_drawn = false;
    }
    sampler_.Sample(pool_, std::span(jobs_).first(sampling_.size()));
    const Clock::time_point now = Clock::now();
    size_t num_verified = 0;
    for (size_t i = 0; i < sampling_.size(); ++i) {
      Sampling sampling = sampling_[i];
      ActiveSequence& sequence = *sampling.sequence;
      const int32_t token = jobs_[i].token;
      const bool appended = AppendToken(sequence, jobs_[i], now, sampling.update);
      stats.generated_tokens += appended ? 1 : 0;
      const bool is_proposed = appended && round < sampling.num_proposed &&
                               token == sequence.proposed[static_cast<size_t>(round)];
      if (is_proposed) ++stats.accepted_tokens[static_cast<size_t>(round)];
      if (is_proposed && !sequence.finished) {
        scheduler_.AcceptProposed(sequence);
        sampling_[num_verified++] = sampling;
      } else {
        Proposer::Learn(static_cast<int>(sampling.num_proposed),
                        static_cast<int>(round + (is_proposed ? 1 : 0)), sequence.proposals);
      }
    }
    sampling_.resize(num_verified);
  }
}

std::optional<FinishReason> EngineCore::FinishOf(const ActiveSequence& sequence, int32_t token,
                                                 std::optional<int32_t>& stop_token) const {
  const SamplingParams& params = *sequence.sampling.params;
  const auto contains = [token](std::span<const int32_t> ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  const bool has_min_tokens = sequence.num_output_tokens() > params.min_tokens;
  // A constraint allows an end token only where the answer is complete.
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
    if (!request.first_token) observer_->OnFirstToken(SecondsBetween(request.request.arrival, now));
    if (sequence.num_output_tokens() > 1)
      observer_->OnInterToken(SecondsBetween(sequence.last_update, now));
  }
  if (!request.first_token) request.first_token = now;
  request.last_token = now;
  sequence.last_update = now;

  SequenceUpdate& update = entry.update;
  update.sequence = sequence.index;
  update.tokens.push_back(job.token);
  if (sequence.sampling.params->logprobs) update.logprobs.push_back(std::move(job.logprobs));
  update.finish = FinishOf(sequence, job.token, update.stop_token);

  if (!request.prompt_sent) TakePrompt(request, now, entry);
  if (update.finish) {
    FinishSequence(sequence);
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
  finished_.clear();
  if (observer_ != nullptr) {
    stats.running = scheduler_.num_running();
    stats.waiting = scheduler_.num_waiting();
    stats.used_blocks = blocks_.num_held();
    stats.total_blocks = blocks_.num_blocks();
    observer_->OnStep(stats);
  }
  for (SinkUpdate& entry : updates_) {
    if (entry.prompt) entry.sink->OnPrompt(*std::move(entry.prompt));
    if (entry.error)
      entry.sink->OnError(*std::move(entry.error));
    else if (entry.pooled)
      entry.sink->OnPooled(*std::move(entry.pooled));
    else
      entry.sink->OnUpdate(std::move(entry.update));
  }
  updates_.clear();
}

void EngineCore::FailStep(const StepPlan& plan, const std::string& reason) {
  LOG_ERROR("engine", "a step of {} sequences failed: {}", plan.slices.size(), reason);
  // Removing sequences does not change the plan's slices.
  for (const PlannedSlice& slice : plan.slices) {
    ActiveRequest& request = *static_cast<ActiveSequence*>(slice.sequence)->request;
    FailRequest(request, {ErrorCode::kInternal, "the step failed: " + reason, ""});
  }
  on_failed_step_();
  Report(StatsOf(plan));
}

void EngineCore::FinishSequence(ActiveSequence& sequence) {
  sequence.finished = true;
  if (proposer_ != nullptr && sequence.request->request.cache_salt.empty()) {
    proposer_->Remember(
        std::span(sequence.tokens).subspan(static_cast<size_t>(sequence.num_prompt_tokens)));
  }
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
  stats.num_sequences = request.request.num_sequences;
  for (const auto& sequence : request.sequences) stats.preemptions += sequence->num_preemptions;
  stats.queue_seconds = SecondsBetween(arrival, request.first_scheduled.value_or(now));
  stats.prefill_seconds = between(request.first_scheduled, request.first_token);
  stats.decode_seconds = between(request.first_token, request.last_token);
  stats.inference_seconds = between(request.first_scheduled, request.last_token);
  stats.total_seconds = SecondsBetween(arrival, request.last_token.value_or(now));
  if (request.first_token)
    stats.first_token_seconds = SecondsBetween(arrival, *request.first_token);
  return stats;
}

void EngineCore::FinishRequest(ActiveRequest& request, FinishReason reason) {
  request.ended = true;
  removed_.clear();
  for (const auto& sequence : request.sequences) {
    if (!std::exchange(sequence->finished, true)) removed_.push_back(sequence.get());
  }
  scheduler_.Remove(removed_);
  request.num_unfinished = 0;
  const RequestStats stats = StatsOf(request, reason);
  if (observer_ != nullptr) observer_->OnFinished(stats);
  request.request.sink->OnStats(stats);
  const auto found = requests_.find(request.handle);
  finished_.push_back(std::move(found->second));
  requests_.erase(found);
  if (on_end_) on_end_(request);
}

StepStats EngineCore::StatsOf(const StepPlan& plan) const {
  StepStats stats;
  stats.preemptions = static_cast<int64_t>(plan.preempted.size());
  stats.prefix_queries = plan.prefix_queries;
  stats.prefix_hits = plan.prefix_hits;
  return stats;
}

void EngineCore::ReportIdle() {
  Report({});
}

}  // namespace sluice
