// For tests: compares the engine with a simple reference under random load: many requests, clients
// that leave, stop strings, failing steps and too few blocks. Every request must get the tokens
// that it gets alone, and exactly one end. At the end, no request or block may remain.
#pragma once

#include <algorithm>
#include <random>
#include <utility>

#include <gtest/gtest.h>

#include "base/log.h"
#include "engine/engine_core.h"
#include "engine/engine_testing.h"

namespace sluice::testing {

inline const std::vector<int32_t> kRandomEndTokens = {FakeModel::kEos};

inline bool Same(const TokenLogprobs& a, const TokenLogprobs& b) {
  return a.token == b.token && a.logprob == b.logprob && a.rank == b.rank && a.top == b.top;
}

// The result of a sequence that runs undisturbed.
struct Expected {
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs;
  std::optional<FinishReason> finish;  // nullopt: the sequence fails after its last token
  std::optional<int32_t> stop_token;
};

// Computes one sequence at a time, without scheduler and cache.
class Reference {
 public:
  explicit Reference(int64_t max_model_len) : max_model_len_(max_model_len) {}

  size_t period = 0;  // see FakeModel::Logits

  Expected Sequence(const Request& request, uint64_t seed) {
    const SamplingParams& params = request.sampling;
    Expected expected;
    std::vector<int32_t> end_tokens = kRandomEndTokens;
    end_tokens.insert(end_tokens.end(), request.end_tokens.begin(), request.end_tokens.end());
    std::vector<int32_t> ends = end_tokens;
    ends.insert(ends.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
    SequenceSampling sampling{&params, seed, std::move(ends), {}};
    std::vector<int32_t> tokens = request.prompt;
    const auto prompt = static_cast<int64_t>(tokens.size());
    const int64_t most = std::min(params.max_tokens, max_model_len_ - prompt);
    const auto is_in = [](int32_t token, std::span<const int32_t> ids) {
      return std::find(ids.begin(), ids.end(), token) != ids.end();
    };
    while (!expected.finish) {
      FakeModel::Logits(tokens, logits_, period);
      SampleJob job;
      job.logits = logits_;
      job.sequence = &sampling;
      job.history = {tokens, prompt};
      sampler_.Sample(pool_, {&job, 1});
      if (!job.error.empty()) return expected;
      tokens.push_back(job.token);
      expected.tokens.push_back(job.token);
      if (params.logprobs) expected.logprobs.push_back(job.logprobs);
      const auto count = static_cast<int64_t>(expected.tokens.size());
      const bool may_end = count > params.min_tokens;
      if (may_end && !params.ignore_eos && is_in(job.token, end_tokens)) {
        expected.finish = FinishReason::kStop;
      } else if (may_end && is_in(job.token, params.stop_token_ids)) {
        expected.finish = FinishReason::kStop;
        expected.stop_token = job.token;
      } else if (count == most) {
        expected.finish = FinishReason::kLength;
      }
    }
    return expected;
  }

  // Returns the prompt logprobs; empty if the request fails before they are complete.
  std::vector<std::optional<TokenLogprobs>> Prompt(const Request& request) {
    std::vector<std::optional<TokenLogprobs>> logprobs(request.prompt.size());
    for (size_t i = 1; i < request.prompt.size(); ++i) {
      FakeModel::Logits(std::span(request.prompt).first(i), logits_, period);
      PromptLogprobJob job{logits_, request.prompt[i], *request.sampling.prompt_logprobs, {}, {}};
      sampler_.PromptLogprobs(pool_, {&job, 1});
      if (!job.error.empty()) return {};
      logprobs[i] = std::move(job.logprobs);
    }
    return logprobs;
  }

 private:
  const int64_t max_model_len_;
  float logits_[FakeModel::kVocab];
  ThreadPool pool_{1};
  Sampler sampler_{FakeModel::kVocab, 1};
};

// Sums the statistics that the observer receives.
struct Account final : EngineObserver {
  void OnStep(const StepStats& stats) override {
    generated += stats.generated_tokens;
    preemptions += stats.preemptions;
    prompt += stats.new_prompt_tokens + stats.prefix_hits;
    EXPECT_LE(stats.prefix_hits, stats.prefix_queries);
    EXPECT_LE(stats.drafts, stats.draft_tokens);
    EXPECT_LE(stats.accepted_tokens[0], stats.drafts);
    last = stats;
  }
  void OnFirstToken(double) override { ++first_tokens; }
  void OnInterToken(double) override { ++inter_tokens; }
  void OnFinished(const RequestStats& stats) override {
    ++finished;
    generated_of_finished += stats.generated_tokens;
    for (const SequenceStats& sequence : stats.sequences) {
      ++sequences_of_finished;
      generated_of_sequences += sequence.generated_tokens;
      preemptions_of_finished += sequence.preemptions;
      if (sequence.generated_tokens == 0) continue;
      ++answered;
      prompt_of_answered += stats.prompt_tokens;
    }
    prompt_of_finished += stats.prompt_tokens * std::ssize(stats.sequences);
  }
  StepStats last;
  int64_t generated = 0, preemptions = 0, first_tokens = 0, inter_tokens = 0, finished = 0,
          generated_of_finished = 0, preemptions_of_finished = 0, sequences_of_finished = 0,
          generated_of_sequences = 0, answered = 0, prompt_of_answered = 0, prompt_of_finished = 0,
          prompt = 0;
};

// Totals of the results that all sinks received.
struct Told {
  int64_t tokens = 0;            // total
  int64_t updates = 0;           // number of updates with tokens
  bool is_step_failing = false;  // whether the current step fails, or may, for all its sequences
};

// A request, and all results that its sink received. Checks each update as it arrives.
struct Asked {
  Request request;
  std::vector<Expected> expected;  // by sequence
  std::vector<std::optional<TokenLogprobs>> prompt_logprobs;
  bool fails_alone = false;

  struct Sequence {
    size_t num_tokens = 0;
    bool has_ended = false, was_stopped = false;
  };
  std::vector<Sequence> sequences;
  bool has_prompt = false, was_aborted = false, has_failed = false;
  int num_ends = 0;  // number of ends that were reported to the engine's owner

  int num_open() const {
    if (was_aborted || has_failed) return 0;
    return static_cast<int>(std::count_if(sequences.begin(), sequences.end(),
                                          [](const Sequence& s) { return !s.has_ended; }));
  }
};

class CheckingSink final : public RequestSink {
 public:
  CheckingSink(Asked* asked, Told* told, const Account* account)
      : asked_(*asked), told_(*told), account_(*account) {}

  void OnPrompt(PromptResult result) override {
    EXPECT_FALSE(asked_.was_aborted || asked_.has_failed || asked_.has_prompt);
    asked_.has_prompt = true;
    const auto length = static_cast<int64_t>(asked_.request.prompt.size());
    EXPECT_TRUE(result.cached_tokens >= 0 && result.cached_tokens < length);
    if (!asked_.request.use_prefix_cache || asked_.request.sampling.prompt_logprobs) {
      EXPECT_EQ(result.cached_tokens, 0);
    }
    EXPECT_EQ(result.logprobs.size(), asked_.prompt_logprobs.size());
    for (size_t i = 0; i < result.logprobs.size() && i < asked_.prompt_logprobs.size(); ++i)
      EXPECT_EQ(result.logprobs[i].has_value(), i > 0);
    for (size_t i = 1; i < result.logprobs.size() && !::testing::Test::HasFailure(); ++i)
      EXPECT_TRUE(Same(*result.logprobs[i], *asked_.prompt_logprobs[i])) << i;
  }
  void OnUpdate(SequenceUpdate update) override {
    const auto index = static_cast<size_t>(update.sequence);
    Asked::Sequence& sequence = asked_.sequences.at(index);
    const Expected& expected = asked_.expected[index];
    EXPECT_FALSE(asked_.was_aborted || asked_.has_failed || sequence.has_ended);
    EXPECT_TRUE(asked_.has_prompt || update.tokens.empty());
    const bool has_logprobs = asked_.request.sampling.logprobs.has_value();
    EXPECT_EQ(update.logprobs.size(), has_logprobs ? update.tokens.size() : 0);
    for (size_t i = 0; i < update.tokens.size(); ++i) {
      const size_t place = sequence.num_tokens++;
      ASSERT_LT(place, expected.tokens.size());
      ASSERT_EQ(update.tokens[i], expected.tokens[place]);
      if (has_logprobs) {
        EXPECT_TRUE(Same(update.logprobs[i], expected.logprobs[place]));
      }
      ++told_.tokens;
    }
    told_.updates += update.tokens.empty() ? 0 : 1;
    EXPECT_LE(told_.tokens, account_.generated) << "told before it was counted";
    if (!update.finish) return;
    sequence.has_ended = true;
    if (*update.finish == FinishReason::kAbort) return;  // the engine is being destroyed
    EXPECT_EQ(update.finish, sequence.was_stopped ? FinishReason::kStop : expected.finish);
    if (!sequence.was_stopped) {
      EXPECT_EQ(sequence.num_tokens, expected.tokens.size());
      EXPECT_EQ(update.stop_token, expected.stop_token);
    }
    if (asked_.num_open() == 0) {
      EXPECT_EQ(asked_.num_ends, 1) << "the owner hears first";
    }
  }
  void OnError(Error error) override {
    const bool none_left = error.message.starts_with("no token is left");
    EXPECT_EQ(error.code, none_left ? ErrorCode::kInvalidArgument : ErrorCode::kInternal)
        << error.message;
    EXPECT_GT(asked_.num_open(), 0);
    EXPECT_TRUE(asked_.fails_alone || told_.is_step_failing) << error.message;
    EXPECT_EQ(asked_.num_ends, 1);
    asked_.has_failed = true;
  }

 private:
  Asked& asked_;
  Told& told_;
  const Account& account_;
};

class RandomEngine : public ::testing::TestWithParam<unsigned> {
 protected:
  RandomEngine() : random_(GetParam()), reference_(kMaxModelLen) {}

  static constexpr int64_t kMaxModelLen = 72;

  int64_t Pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(unsigned count) { return random_() % count == 0; }

  // For an engine whose model has several ranks. ServedModel returns the first rank's model, which
  // uses `model_`. The other functions return whether ranks may be lost, and whether ranks were
  // lost.
  virtual Model& ServedModel() { return *model_; }
  // Returns the journal of the engine; null: none.
  virtual EngineJournal* Journal() { return nullptr; }
  virtual bool may_lose_ranks() const { return false; }
  virtual bool has_lost_ranks() { return false; }

  void Open() {
    plan_ = {};
    SchedulerLimits& limits = plan_.scheduler;
    limits.block_size = static_cast<int>(Pick(1, 5));
    limits.max_num_seqs = Pick(1, 10);
    limits.max_num_batched_tokens = std::max(limits.max_num_seqs, Pick(2, 40));
    limits.max_prompt_logit_rows = Pick(1, 8);
    limits.chunked_prefill = !OneIn(5);
    if (!limits.chunked_prefill) limits.max_num_batched_tokens = kMaxModelLen;
    limits.long_prefill_token_threshold = OneIn(3) ? Pick(1, 12) : 0;
    limits.policy = static_cast<SchedulingPolicy>(Pick(0, 2));
    limits.ageing = {.level_us = Pick(0, 1000), .max_levels = Pick(0, 3)};
    const bool keeps_states = OneIn(3);
    for (int64_t others = OneIn(2) ? Pick(1, 3) : 0; others > 0; --others) {
      AttentionSpan group;
      if (!keeps_states && !OneIn(4)) (OneIn(2) ? group.chunk : group.window) = Pick(1, 30);
      limits.groups.push_back(group);
    }
    OpenFlights(limits);
    plan_.num_blocks = MostBlocks(limits, kMaxModelLen) + Pick(0, 40);
    plan_.config.enable_prefix_caching = caches_ = !OneIn(4);
    SpeculationConfig& speculation = plan_.config.speculation;
    if (keeps_states) {
      plan_.num_state_slots = limits.max_num_seqs + Pick(0, 12);
      limits.snapshot_interval = limits.block_size * Pick(0, 4);
    }
    if (OneIn(2)) {
      using Method = SpeculationConfig::Method;
      speculation.method = OneIn(2) ? Method::kNgram : Method::kSuffix;
      speculation.num_tokens = static_cast<int>(Pick(1, 9));
      speculation.lookup_min = static_cast<int>(Pick(1, 3));
      speculation.lookup_max = speculation.lookup_min + static_cast<int>(Pick(0, 4));
      speculation.cached_tokens = Pick(0, 200);
      limits.max_proposed_tokens = Pick(1, 30);
    } else if (OneIn(2)) {
      plan_.config.draft.folder = "draft";
      plan_.config.draft.num_tokens = static_cast<int>(Pick(1, 9));
      plan_.config.draft.adaptive = OneIn(3);
      limits.max_proposed_tokens = Pick(1, 30);
    }
    model_ = std::make_unique<FakeModel>(limits.block_size, plan_.num_blocks, limits.groups,
                                         plan_.num_state_slots);
    // The model throws on poison; only then may requests fail that did not cause it.
    model_->on_poison = [this] { told_.is_step_failing = true; };
    model_->most_in_flight = static_cast<int>(limits.steps_in_flight);
    model_->keeps_drawn = limits.steps_in_flight > limits.num_stages;
    model_->draws = model_->keeps_drawn || OneIn(2);
    model_->period = reference_.period = OneIn(2) ? static_cast<size_t>(Pick(1, 9)) : 0;
    kernels::KvLayout layout;
    layout.num_kv_heads = 1;
    layout.head_dim = 32;
    layout.block_size = limits.block_size;
    cache_ = std::make_unique<KvCache>(*KvCache::Allocate(layout, 1, plan_.num_blocks));
    OpenDraft();
    core_ = *EngineCore::Create(
        plan_, ServedModel(), *cache_, pool_, &account_,
        [this](const ActiveRequest& request) { ++asked_.at(request.handle - 1)->num_ends; },
        [this] { ++num_failed_steps_; }, draft_.get());
    core_->UseJournal(Journal());
  }

  // The draft's cache or number of rows may be too small, and the draft may predict other tokens
  // than the model.
  void OpenDraft() {
    if (!plan_.config.draft.is_given()) return;
    plan_.draft = FakeDraftPlan(plan_, Pick(1, 100), OneIn(2) ? kMaxModelLen : Pick(2, 60));
    plan_.draft->options.max_rows = std::max(plan_.draft->max_sequences, Pick(1, 50));
    draft_ = std::make_unique<FakeModel>(plan_.scheduler.block_size, plan_.draft->num_blocks);
    draft_->period = OneIn(4) ? 0 : model_->period;
  }

  // There may be several pipeline stages, each with a step in flight, or a device that stores the
  // tokens that it draws.
  virtual void OpenFlights(SchedulerLimits& limits) {
    if (OneIn(3)) {
      limits.steps_in_flight = limits.num_stages = Pick(2, 4);
    } else if (OneIn(2)) {
      limits.steps_in_flight = 2;
    }
  }

  SamplingParams RandomParams() {
    SamplingParams params;
    params.max_tokens = Pick(1, 40);
    params.temperature = OneIn(2) ? 0 : 0.5 * static_cast<double>(Pick(1, 4));
    if (OneIn(2)) params.seed = Pick(0, 1000);
    if (OneIn(4)) params.top_p = 0.8;
    if (OneIn(4)) params.top_k = Pick(1, 9);
    if (OneIn(6)) params.presence_penalty = 1.5;
    if (OneIn(6)) params.repetition_penalty = 1.2;
    if (OneIn(6)) params.logprobs = static_cast<int32_t>(Pick(0, 3));
    if (OneIn(6)) params.min_tokens = Pick(1, 8);
    if (OneIn(6)) params.logit_bias = {{FakeModel::kEos, 15.0f}};
    // Some sequences sample a token that makes the sequence (NaN) or the step (poison) fail.
    if (OneIn(20)) params.logit_bias = {{FakeModel::kNanToken, 13.0f}};
    // Excludes speculation: a poison token in an answer could be proposed to other sequences, or a
    // draft model could draw it although the model does not.
    if (OneIn(60) && has_poison_ && !plan_.config.draft.is_given() &&
        plan_.config.speculation.method != SpeculationConfig::Method::kSuffix)
      params.logit_bias = {{FakeModel::kPoison, 13.0f}};
    if (OneIn(6)) params.stop_token_ids = {static_cast<int32_t>(Pick(0, 20))};
    if (OneIn(9)) params.ignore_eos = true;
    if (OneIn(9)) params.bad_words = {{3}, {4, 5}};
    // Fails before min_tokens is reached.
    if (OneIn(30)) params.allowed_token_ids = {{FakeModel::kEos}};
    if (OneIn(9)) params.prompt_logprobs = static_cast<int32_t>(Pick(0, 2));
    return params;
  }

  void Submit() {
    asked_.push_back(std::make_unique<Asked>());
    Asked& asked = *asked_.back();
    Request& request = asked.request;
    // There are only a few kinds of prompts, so that prefixes are shared.
    const auto first = static_cast<int32_t>(Pick(0, 2));
    for (int64_t i = Pick(1, 40); i > 0; --i)
      request.prompt.push_back((first + static_cast<int32_t>(i * i)) % 50);
    std::reverse(request.prompt.begin(), request.prompt.end());
    if (OneIn(3)) request.prompt.push_back(static_cast<int32_t>(Pick(0, 50)));
    const auto any = static_cast<size_t>(Pick(0, static_cast<int64_t>(request.prompt.size()) - 1));
    if (OneIn(40) && has_poison_) request.prompt[any] = FakeModel::kPoison;
    if (OneIn(40)) request.prompt[any] = FakeModel::kNanToken;
    if (OneIn(60)) request.prompt.back() = FakeModel::kNanToken;
    request.sampling = RandomParams();
    request.num_sequences = OneIn(3) ? static_cast<int>(Pick(2, 5)) : 1;
    request.priority = Pick(-2, 2);
    request.client = static_cast<uint64_t>(Pick(1, 4));
    if (OneIn(6)) request.cache_salt = "salt";
    if (OneIn(6)) request.end_tokens = {static_cast<int32_t>(Pick(0, 20))};
    request.use_prefix_cache = !OneIn(6);
    const uint64_t seed = random_();
    for (int i = 0; i < request.num_sequences; ++i) {
      const auto& given = request.sampling.seed;
      asked.expected.push_back(reference_.Sequence(
          request, (given ? static_cast<uint64_t>(*given) : seed) + static_cast<uint64_t>(i)));
      asked.fails_alone = asked.fails_alone || !asked.expected.back().finish;
    }
    if (request.sampling.prompt_logprobs) {
      asked.prompt_logprobs = reference_.Prompt(request);
      asked.fails_alone = asked.fails_alone || asked.prompt_logprobs.empty();
    }
    asked.sequences.resize(static_cast<size_t>(request.num_sequences));
    request.sink = std::make_shared<CheckingSink>(&asked, &told_, &account_);
    const RequestLimits limits{FakeModel::kVocab, kMaxModelLen};
    ASSERT_TRUE(CheckRequest(request, limits));
    const bool siblings_wait =
        (caches_ && request.use_prefix_cache) || request.sampling.prompt_logprobs;
    core_->Add(
        MakeActiveRequest(asked_.size(), request, limits, kRandomEndTokens, seed, siblings_wait));
  }

  // Returns a random request that has not ended; null if none was found.
  Asked* AnyOpen(RequestHandle& handle) {
    if (asked_.empty()) return nullptr;
    const auto from = static_cast<int64_t>(asked_.size()) - 12;
    handle = static_cast<RequestHandle>(
        Pick(std::max<int64_t>(1, from), static_cast<int64_t>(asked_.size())));
    Asked* asked = asked_[handle - 1].get();
    return asked->num_open() > 0 ? asked : nullptr;
  }

  void AbortOne() {
    RequestHandle handle = 0;
    Asked* asked = AnyOpen(handle);
    if (asked != nullptr) asked->was_aborted = true;
    core_->Abort(handle);  // has no effect on a request that has ended
  }

  void StopOne() {
    RequestHandle handle = 0;
    Asked* asked = AnyOpen(handle);
    if (asked == nullptr) return;
    const size_t index = random_() % asked->sequences.size();
    // Only the first sequence receives prompt logprobs.
    if (asked->request.sampling.prompt_logprobs && !asked->has_prompt) return;
    Asked::Sequence& sequence = asked->sequences[index];
    const bool was_open = !sequence.has_ended;
    sequence.was_stopped = sequence.was_stopped || was_open;
    core_->StopSequence(handle, static_cast<int>(index));
    EXPECT_TRUE(sequence.has_ended);
  }

  void Step() {
    const int64_t steps_before = model_->steps - core_->num_in_flight();
    const bool were_lost = has_lost_ranks();
    told_.is_step_failing = may_lose_ranks();
    const bool ok = core_->Step();
    if (!has_lost_ranks()) {
      EXPECT_EQ(model_->steps - core_->num_in_flight(), steps_before + 1) << "a step ends";
    }
    EXPECT_FALSE(ok && were_lost);
    EXPECT_TRUE(ok || told_.is_step_failing);
    EXPECT_EQ(std::exchange(num_failed_steps_, 0), ok ? 0 : 1);
    told_.is_step_failing = false;
    // The gauges show the current state, even after a failed step.
    EXPECT_EQ(account_.last.running, core_->scheduler().num_running());
    EXPECT_EQ(account_.last.waiting, core_->scheduler().num_waiting());
    EXPECT_EQ(account_.last.used_blocks, core_->pool().num_held());
    CheckAccounts();
  }

  void CheckAccounts() {
    const Status status = core_->CheckInvariant();
    EXPECT_TRUE(status) << status.error().message;
    int64_t open = 0;
    for (const auto& asked : asked_) open += asked->num_open();
    EXPECT_EQ(core_->scheduler().num_running() + core_->scheduler().num_waiting(), open);
    EXPECT_EQ(account_.generated, told_.tokens);
    EXPECT_EQ(account_.preemptions, core_->scheduler().num_preemptions());
  }

  void CheckNothingIsLeft() {
    EXPECT_FALSE(core_->has_work());
    CheckAccounts();
    EXPECT_EQ(core_->pool().num_held(), 0);
    if (core_->drafter() != nullptr) {
      EXPECT_TRUE(core_->drafter()->pool().CheckInvariant());
      EXPECT_EQ(core_->drafter()->pool().num_held(), 0);
    }
    EXPECT_TRUE(core_->ResetPrefixCache());
    EXPECT_EQ(core_->pool().num_free(), core_->pool().num_blocks());
    EXPECT_EQ(account_.finished, static_cast<int64_t>(asked_.size()));
    EXPECT_EQ(account_.generated_of_finished, told_.tokens);
    EXPECT_EQ(account_.preemptions_of_finished, account_.preemptions);
    EXPECT_EQ(account_.generated_of_sequences, account_.generated_of_finished);
    // Requests that ended before their first token computed only a part of their prompts.
    EXPECT_GE(account_.prompt, account_.prompt_of_answered);
    EXPECT_LE(account_.prompt, account_.prompt_of_finished);
    int64_t spoke = 0;  // number of sequences with tokens
    for (const auto& asked : asked_) {
      EXPECT_EQ(asked->num_ends, 1);
      EXPECT_EQ(asked->num_open(), 0) << "somebody waits for ever";
      EXPECT_EQ(asked->request.sink.use_count(), 1) << "somebody is kept";
      spoke += std::count_if(asked->sequences.begin(), asked->sequences.end(),
                             [](const auto& s) { return s.num_tokens > 0; });
    }
    EXPECT_EQ(account_.first_tokens, spoke);
    EXPECT_EQ(account_.answered, spoke);
    EXPECT_EQ(account_.inter_tokens, told_.updates - spoke);
  }

  // Runs from the first request to the last end.
  void Run() {
    Open();
    const unsigned busy = static_cast<unsigned>(Pick(2, 8));
    for (int round = 0; round < 250 && !HasFailure(); ++round) {
      if (core_->scheduler().num_waiting() < 30 && OneIn(busy)) Submit();
      if (OneIn(16)) AbortOne();
      if (OneIn(16)) StopOne();
      if (OneIn(40)) core_->ResetPrefixCache();
      CheckAccounts();
      if (core_->has_work()) Step();
    }
    if (OneIn(4)) core_->AbortAll();
    num_failed_steps_ = 0;
    for (int steps = 0; core_->has_work() && steps < 20000 && !HasFailure(); ++steps) Step();
    if (!HasFailure()) CheckNothingIsLeft();
  }

  std::mt19937 random_;
  Reference reference_;
  bool caches_ = true;
  // False for models with ranks, because a step that throws ends the group.
  bool has_poison_ = true;
  int num_failed_steps_ = 0;
  Account account_;
  Told told_;
  std::vector<std::unique_ptr<Asked>> asked_;  // by handle - 1
  ThreadPool pool_{1};
  std::unique_ptr<FakeModel> model_, draft_;
  std::unique_ptr<KvCache> cache_;
  EnginePlan plan_;
  std::unique_ptr<EngineCore> core_;
};

}  // namespace sluice::testing
