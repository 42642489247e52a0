// For tests: a model without weights whose answers reveal every error in the cache, and a sink that
// collects results.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "constraints/constraint.h"
#include "device/emulated_device.h"
#include "engine/engine_loop.h"
#include "kernels/sampling.h"
#include "sampler/draw.h"

namespace sluice::testing {

// Its "KV cache" contains the tokens themselves: the logits of a row are a hash of all tokens of
// its sequence, read back through the block table. So a block that is lost, wrongly shared or
// reused too early changes the answer. Groups that do not keep all positions contain a hash of all
// tokens up to each position; a wrong hash at a position that the group attends to also changes the
// answer.
class FakeModel final : public Model {
 public:
  static constexpr int kVocab = 64;
  static constexpr int32_t kPoison = 60;    // a step with this token throws
  static constexpr int32_t kNanToken = 61;  // a sequence that ends with it gets NaN logits
  static constexpr int32_t kEos = 63;       // never the likeliest token

  // With `num_states` slots, each sequence keeps a state: a hash of its tokens. A wrong state
  // changes the answer.
  FakeModel(int block_size, int64_t num_blocks,
            std::vector<AttentionSpan> groups = {AttentionSpan{}}, int64_t num_states = 0)
      : Model(Config()),
        block_size_(block_size),
        groups_(std::move(groups)),
        slots_(static_cast<size_t>(block_size * num_blocks), -1),
        states_(static_cast<size_t>(num_states)) {}

  static ModelConfig Config() {
    ModelConfig config;
    config.architecture = "Fake";
    config.vocab_size = config.spec.vocab_size = kVocab;
    config.max_position_embeddings = 1 << 20;
    return config;
  }

  // Computes the logits after `tokens`. With a `period`, the most likely token is usually the one
  // `period` positions back.
  static void Logits(std::span<const int32_t> tokens, float* logits, size_t period = 0) {
    uint64_t hash = 1469598103934665603u;
    for (const int32_t token : tokens)
      hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211u;
    for (int i = 0; i < kVocab; ++i) {
      uint64_t value = hash + static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u;
      value = (value ^ (value >> 31)) * 0xBF58476D1CE4E5B9u;
      logits[i] = static_cast<float>((value >> 40) & 0xffff) / 10000.0f;
      if (i >= kPoison) logits[i] = -10;
    }
    if (period > 0 && tokens.size() >= period && hash % 8 != 0) {
      const int32_t again = tokens[tokens.size() - period];
      // The step after a failed step may read leftover content from the cache.
      if (again >= 0 && again < kPoison) logits[again] += 20;
    }
    if (tokens.back() == kNanToken) logits[3] = std::nanf("");
  }

  // Returns the expected greedy answer.
  static std::vector<int32_t> Greedy(std::vector<int32_t> tokens, int64_t count) {
    const size_t prompt = tokens.size();
    float logits[kVocab];
    for (int64_t i = 0; i < count; ++i) {
      Logits(tokens, logits);
      tokens.push_back(static_cast<int32_t>(std::max_element(logits, logits + kVocab) - logits));
    }
    return {tokens.begin() + static_cast<int64_t>(prompt), tokens.end()};
  }

  void Forward(ThreadPool&, const StepInput& input, KvCache&, float* logits) override {
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    while (hang || steps >= allowed_steps)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++steps;
    if (lost) throw std::runtime_error(CheckAlive().error().message);
    for (const int32_t token : input.tokens) {
      if (token == kPoison) FailByPoison();
    }
    largest_step = std::max<int64_t>(largest_step, static_cast<int64_t>(input.tokens.size()));
    size_t next_row = 0;
    EXPECT_EQ(input.num_groups, static_cast<int64_t>(groups_.size()));
    for (const kernels::AttentionSlice& slice : input.SlicesOf(0)) {
      for (int32_t i = 0; i < slice.num_tokens; ++i) {
        Slot(slice, slice.context + i) = input.tokens[static_cast<size_t>(slice.first_row + i)];
      }
    }
    for (const StateCopy& copy : input.state_copies) State(copy.to) = State(copy.from);
    for (size_t i = 0; i < input.SlicesOf(0).size(); ++i) {
      const kernels::AttentionSlice& slice = input.SlicesOf(0)[i];
      const bool groups_intact = UpdateGroups(input, i);
      const bool intact = UpdateState(input, i) && groups_intact;
      for (; next_row < input.logit_rows.size(); ++next_row) {
        const int64_t row = input.logit_rows[next_row];
        if (row >= slice.first_row + slice.num_tokens) break;
        const int32_t length = slice.context + static_cast<int32_t>(row - slice.first_row) + 1;
        context_.clear();
        for (int32_t position = 0; position < length; ++position)
          context_.push_back(Slot(slice, position));
        if (fast) {
          std::fill(logits, logits + kVocab, 0.5f);
        } else {
          Logits(context_, logits, period);
          if (!intact) std::reverse(logits, logits + kVocab);
        }
        if (!input.draws.empty()) Draw(input.draws[next_row], input.draw_words, logits);
        logits += kVocab;
      }
    }
  }
  bool draws_tokens() const override { return draws; }
  DrawLimits draw_limits() const override { return {.words = 4096, .top = 8}; }

  // With several steps in flight, results are delivered when a step ends.
  int steps_in_flight() const override { return most_in_flight; }
  bool takes_drawn_tokens() const override { return keeps_drawn; }
  void Begin(ThreadPool& pool, const StepInput& input, KvCache& cache, float* results) override {
    if (most_in_flight == 1) return Forward(pool, input, cache, results);
    EXPECT_LT(static_cast<int>(in_flight_.size()), most_in_flight);
    std::vector<int32_t> tokens(input.tokens.begin(), input.tokens.end());
    for (int32_t& token : tokens) {
      if (token < 0) token = drawn_.at(static_cast<size_t>(-1 - token));
    }
    Step step;
    step.results = results;
    step.draws = input.draws;
    step.computed_draws.assign(input.draws.begin(), input.draws.end());
    step.computed.resize(input.logit_rows.size() * kVocab);
    StepInput known = input;
    known.tokens = tokens;
    known.draws = step.computed_draws;
    step.fails = std::ranges::count(tokens, kPoison) > 0 && steps % 2 == 0;
    if (step.fails) {
      ++steps;
    } else {
      Forward(pool, known, cache, step.computed.data());
    }
    drawn_.clear();
    for (const TokenDraw& draw : step.computed_draws) drawn_.push_back(draw.token);
    in_flight_.push_back(std::move(step));
  }
  void Finish(ThreadPool&) override {
    if (most_in_flight == 1) return;
    ASSERT_FALSE(in_flight_.empty());
    const Step step = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (step.fails) FailByPoison();
    std::ranges::copy(step.computed, step.results);
    std::ranges::copy(step.computed_draws, step.draws.begin());
  }
  Status CheckAlive() override {
    if (!lost) return {};
    return Fail(ErrorCode::kUnavailable, "rank 1 (process 7 on node3) has ended");
  }

  std::function<void()> on_poison;  // called before a step throws because of kPoison
  bool draws = false;               // whether it draws tokens, if asked to
  std::atomic<int64_t> num_drawn{0};
  std::chrono::microseconds delay{0};
  std::atomic<bool> hang{false};
  std::atomic<bool> lost{false};  // if true, CheckAlive fails and every step throws
  // Steps beyond this number wait until the number is raised. So commands that are sent meanwhile
  // reach the engine while it has work.
  std::atomic<int64_t> allowed_steps{std::numeric_limits<int64_t>::max()};
  int most_in_flight = 1;
  bool keeps_drawn = false;  // whether it stores the drawn tokens for use in the next step
  bool fast = false;         // constant logits
  size_t period = 0;
  std::atomic<int64_t> steps{0};
  int64_t largest_step = 0;

 private:
  [[noreturn]] void FailByPoison() {
    if (on_poison) on_poison();
    throw std::runtime_error("poison");
  }
  int32_t& Slot(const kernels::AttentionSlice& slice, int32_t position) {
    const int32_t slot =
        slice.block_table[position / block_size_] * block_size_ + position % block_size_;
    return slots_[static_cast<size_t>(slot)];
  }

  // Draws as a device does, and overwrites the logits.
  void Draw(TokenDraw& draw, std::span<const uint32_t> words, float* logits) {
    if (!draw.is_wanted) return;
    ++num_drawn;
    const std::span<const float> row(logits, kVocab);
    if (std::any_of(row.begin(), row.end(), [](float x) { return std::isnan(x); })) {
      draw.error = kernels::DrawError::kNan;
    } else {
      std::vector<float> raw(row.begin(), row.end());
      const kernels::DrawExtras& extras = draw.extras;
      const auto mask = [&](int32_t first, std::vector<float>& changed) {
        if (first >= 0) MaskByBits(words.subspan(static_cast<size_t>(first)), changed);
      };
      mask(extras.mask, raw);
      std::vector<float> changed = raw;
      mask(extras.draw_mask, changed);
      Change(extras, words, changed);
      DrawFrom(raw, changed, draw);
    }
    std::fill(logits, logits + kVocab, std::nanf(""));
  }

  static void Change(const kernels::DrawExtras& extras, std::span<const uint32_t> words,
                     std::vector<float>& logits) {
    for (int32_t i = 0; i < extras.num_biases; ++i) {
      const auto place = static_cast<size_t>(extras.biases) + 2 * static_cast<size_t>(i);
      logits[words[place]] += std::bit_cast<float>(words[place + 1]);
    }
    for (int32_t i = 0; i < extras.num_counts; ++i) {
      const auto place = static_cast<size_t>(extras.counts) + 2 * static_cast<size_t>(i);
      float& logit = logits[words[place]];
      logit = logit > 0 ? logit / extras.repetition : logit * extras.repetition;
      if (words[place + 1] == 0) continue;
      logit -= extras.frequency * static_cast<float>(words[place + 1]);
      logit -= extras.presence;
    }
  }

  void DrawFrom(const std::vector<float>& raw, const std::vector<float>& changed, TokenDraw& draw) {
    const int32_t best = kernels::ArgMax(changed);
    const float largest = changed[static_cast<size_t>(best)];
    if (!std::isfinite(largest)) {
      draw.error = draw.extras.is_changed != 0 ? kernels::DrawError::kNothingAllowed
                                               : kernels::DrawError::kNoFiniteLogit;
      return;
    }
    SamplingParams params;
    params.temperature =
        draw.settings.scale == 0 ? 0 : 1 / static_cast<double>(draw.settings.scale);
    params.top_k = draw.settings.top_k;
    params.top_p = draw.settings.top_p;
    params.min_p = std::exp(-static_cast<double>(draw.settings.farthest));
    draw.token = params.temperature == 0
                     ? best
                     : DrawToken(changed, largest, params, draw.settings.uniform, draw_scratch_);
    if (draw.extras.logprobs == kernels::LogprobsOf::kNone) return;
    std::vector<float> told = raw;
    if (draw.extras.logprobs == kernels::LogprobsOf::kDrawn) {
      told = changed;
      const bool cuts = params.top_k > 0 || params.top_p < 1 || params.min_p > 0;
      for (size_t i = 0; i < told.size() && params.temperature != 0; ++i) {
        told[i] *= draw.settings.scale;
        if (cuts && draw_scratch_.weights[i] == 0)
          told[i] = -std::numeric_limits<float>::infinity();
      }
    }
    const kernels::LogSumExp sum = kernels::ComputeLogSumExp(told);
    const float chosen = told[static_cast<size_t>(draw.token)];
    draw.logprobs = {std::exp(static_cast<double>(sum.log_sum)), sum.largest, chosen,
                     int64_t{kernels::CountGreater(told, chosen)} + 1};
    std::vector<std::pair<int32_t, float>> top;
    kernels::TopK(told, draw.extras.num_top, top);
    std::ranges::transform(top, draw.top.begin(), [](const auto& entry) {
      return kernels::TopLogit{entry.first, entry.second};
    });
  }

  // Checks the content of the groups after the first for a slice, and writes the content for the
  // slice's tokens. Returns false if content to which the slice attends does not match the tokens.
  bool UpdateGroups(const StepInput& input, size_t index) {
    bool intact = true;
    for (int64_t group = 1; group < input.num_groups; ++group) {
      const kernels::AttentionSlice& all = input.SlicesOf(0)[index];
      const kernels::AttentionSlice& slice = input.SlicesOf(group)[index];
      const int64_t seen = groups_[static_cast<size_t>(group)].FirstSeen(slice.context);
      uint32_t hash = 0;
      for (int32_t position = 0; position < slice.context + slice.num_tokens; ++position) {
        hash = (hash ^ static_cast<uint32_t>(Slot(all, position))) * 16777619u + 1u;
        if (position >= slice.context)
          Slot(slice, position) = static_cast<int32_t>(hash);
        else if (position >= seen)
          intact = intact && Slot(slice, position) == static_cast<int32_t>(hash);
      }
    }
    return intact;
  }

  uint64_t& State(int32_t slot) { return states_.at(static_cast<size_t>(slot)); }

  // Like UpdateGroups, for the slice's state.
  bool UpdateState(const StepInput& input, size_t index) {
    if (states_.empty()) return true;
    const kernels::AttentionSlice& slice = input.SlicesOf(0)[index];
    const StateSlot& own = input.states[index];
    constexpr uint64_t kNew = 1469598103934665603u;
    const auto add = [&](uint64_t hash, int32_t position) {
      return (hash ^ static_cast<uint64_t>(Slot(slice, position))) * 1099511628211u + 1;
    };
    uint64_t expected = kNew;
    for (int32_t position = 0; position < slice.context; ++position)
      expected = add(expected, position);
    uint64_t hash = own.is_new ? kNew : State(own.slot);
    const bool is_intact = hash == expected;
    for (int32_t row = 1; row <= slice.num_tokens; ++row) {
      hash = add(hash, slice.context + row - 1);
      for (const StateSnapshot& snapshot : input.state_snapshots) {
        if (snapshot.slice == static_cast<int32_t>(index) && snapshot.rows == row)
          State(snapshot.slot) = hash;
      }
    }
    State(own.slot) = hash;
    return is_intact;
  }

  struct Step {
    float* results = nullptr;
    std::span<TokenDraw> draws;
    std::vector<float> computed;
    std::vector<TokenDraw> computed_draws;
    bool fails = false;
  };
  std::deque<Step> in_flight_;
  std::vector<int32_t> drawn_;  // tokens that the last step drew

  int block_size_;
  const std::vector<AttentionSpan> groups_;
  DrawScratch draw_scratch_{kVocab};
  std::vector<int32_t> slots_;
  std::vector<uint64_t> states_;
  std::vector<int32_t> context_;
};

// The n-th token of an answer (from 0) must be congruent to n modulo 3. Computing the mask of every
// `slow_every`-th token takes `seconds`, which the matcher spends sleeping. After a call was
// stopped, the matcher is unusable.
class StripeConstraint final : public Constraint {
 public:
  explicit StripeConstraint(double seconds = 0, int slow_every = 1)
      : seconds_(seconds), slow_every_(slow_every) {}
  std::unique_ptr<TokenMatcher> NewMatcher() const override {
    return std::make_unique<Matcher>(seconds_, slow_every_);
  }
  size_t bytes() const override { return 0; }

 private:
  class Matcher final : public TokenMatcher {
   public:
    Matcher(double seconds, int slow_every) : seconds_(seconds), slow_every_(slow_every) {}
    bool Advance(int32_t token) override {
      if (is_stopped_ || token % 3 != count_ % 3) return false;
      ++count_;
      return true;
    }
    bool FillMask(std::span<uint32_t> mask) override {
      if (is_stopped_ || !Spend(count_ % slow_every_ == 0 ? seconds_ : 0)) return false;
      std::ranges::fill(mask, 0);
      for (size_t token = count_ % 3; token < 32 * mask.size(); token += 3)
        mask[token / 32] |= 1u << (token % 32);
      return true;
    }
    void RollBack(int num_tokens) override { count_ -= num_tokens; }
    void Reset() override {
      count_ = 0;
      is_stopped_ = false;
    }
    bool is_finished() const override { return false; }
    void LimitCalls(double cpu_seconds) override { most_seconds_ = cpu_seconds; }
    bool is_stopped() const override { return is_stopped_; }
    double cpu_seconds() const override { return spent_; }

   private:
    bool Spend(double seconds) {
      is_stopped_ = seconds > most_seconds_;
      const double spent = std::min(seconds, most_seconds_);
      if (spent > 0) std::this_thread::sleep_for(std::chrono::duration<double>(spent));
      spent_ += spent;
      return !is_stopped_;
    }

    const double seconds_;
    const int slow_every_;
    int count_ = 0;
    double most_seconds_ = std::numeric_limits<double>::infinity();
    double spent_ = 0;
    bool is_stopped_ = false;
  };

  const double seconds_;
  const int slow_every_;
};

// Collects the results of a request. Thread safety: any thread.
class CollectingSink final : public RequestSink {
 public:
  explicit CollectingSink(int num_sequences = 1) : sequences(static_cast<size_t>(num_sequences)) {}

  struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<TokenLogprobs> logprobs;
    std::optional<FinishReason> finish;
    std::optional<int32_t> stop_token;
  };

  void OnPrompt(PromptResult result) override {
    const std::lock_guard lock(mutex);
    EXPECT_FALSE(prompt.has_value()) << "sent twice";
    EXPECT_EQ(num_updates, 0) << "after tokens";
    prompt = std::move(result);
  }
  void OnUpdate(SequenceUpdate update) override {
    const std::lock_guard lock(mutex);
    ++num_updates;
    Sequence& sequence = sequences.at(static_cast<size_t>(update.sequence));
    EXPECT_FALSE(sequence.finish.has_value()) << "news after the end";
    EXPECT_FALSE(error.has_value());
    sequence.tokens.insert(sequence.tokens.end(), update.tokens.begin(), update.tokens.end());
    for (TokenLogprobs& entry : update.logprobs) sequence.logprobs.push_back(std::move(entry));
    sequence.finish = update.finish;
    sequence.stop_token = update.stop_token;
    changed.notify_all();
  }
  void OnPooled(std::vector<float>&& vector) override {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(prompt.has_value());
    EXPECT_FALSE(pooled.has_value() || error.has_value());
    pooled = std::move(vector);
    changed.notify_all();
  }
  void OnError(Error reason) override {
    const std::lock_guard lock(mutex);
    EXPECT_FALSE(error.has_value());
    error = std::move(reason);
    changed.notify_all();
  }

  // Waits until all sequences have ended or an error was reported. Returns false after two minutes.
  bool WaitForEnd() {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::minutes(2), [this] {
      return error || pooled || std::all_of(sequences.begin(), sequences.end(), [](const auto& s) {
               return s.finish.has_value();
             });
    });
  }
  bool WaitForTokens(size_t count, size_t sequence = 0) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::minutes(2),
                            [&] { return sequences[sequence].tokens.size() >= count || error; });
  }
  const std::vector<int32_t>& tokens() const { return sequences[0].tokens; }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Sequence> sequences;
  std::optional<PromptResult> prompt;
  std::optional<std::vector<float>> pooled;
  std::optional<Error> error;
  int num_updates = 0;
};

// Sums the engines' reports. Thread safety: several engines may report to it; may be read at any
// time.
class CountingObserver final : public EngineObserver {
 public:
  void OnStep(const StepStats& stats) override {
    preemptions += stats.preemptions;
    prompt_tokens += stats.prompt_tokens;
    generated_tokens += stats.generated_tokens;
    prefix_hits += stats.prefix_hits;
    tier_hits += stats.tier_hits;
    drafts += stats.drafts;
    draft_tokens += stats.draft_tokens;
    most_in_flight = std::max<int64_t>(most_in_flight, stats.in_flight);
    replayed += stats.replayed;
    for (const int64_t count : stats.accepted_tokens) accepted_tokens += count;
    if (stats.generated_tokens + stats.prompt_tokens > 0) {
      ++steps;
      host_seconds += stats.step_seconds - stats.model_seconds;
    }
    // Set last, so that a reader who sees that nothing is running finds all counts complete.
    used_blocks = stats.used_blocks;
    running = stats.running;
    waiting = stats.waiting;
  }
  void OnFirstToken(double) override { ++first_tokens; }
  void OnInterToken(double) override { ++inter_tokens; }
  void OnFinished(const RequestStats& stats) override {
    ++finished;
    last_reason = static_cast<int>(stats.reason);
  }

  std::atomic<int64_t> used_blocks{0}, running{0}, waiting{0}, preemptions{0}, prompt_tokens{0},
      generated_tokens{0}, prefix_hits{0}, tier_hits{0}, drafts{0}, draft_tokens{0},
      accepted_tokens{0}, steps{0}, first_tokens{0}, inter_tokens{0}, finished{0}, last_reason{-1},
      most_in_flight{0}, replayed{0};
  std::atomic<double> host_seconds{0};
};

// Returns the plan of a draft model that is a FakeModel, given the limits in the engine's plan.
inline DraftPlan FakeDraftPlan(const EnginePlan& plan, int64_t num_blocks, int64_t max_len) {
  DraftPlan draft;
  draft.model = FakeModel::Config();
  draft.model.spec.layers.resize(1);
  draft.layout.num_kv_heads = 1;
  draft.layout.head_dim = 32;
  draft.layout.block_size = plan.scheduler.block_size;
  draft.num_blocks = num_blocks;
  draft.max_sequences = plan.scheduler.max_proposed_tokens;
  draft.options.max_rows = std::max<int64_t>(draft.max_sequences, 48);
  draft.options.max_context = max_len;
  draft.keeps_prefixes = plan.config.enable_prefix_caching;
  draft.adaptive = plan.config.draft.adaptive;
  return draft;
}

// An engine over a FakeModel.
struct FakeEngine {
  struct Options {
    int block_size = 4;
    int64_t num_blocks = 256;
    int64_t max_model_len = 512;
    int64_t max_num_seqs = 32;
    int64_t max_num_batched_tokens = 64;
    int64_t max_prompt_logit_rows = 8;
    bool prefix_caching = true;
    std::vector<AttentionSpan> groups = {AttentionSpan{}};
    int num_threads = 1;
    int num_stages = 1;       // steps in flight
    bool has_device = false;  // the plan has a device, on which nothing runs
    LoopLimits loop = {};
    SpeculationConfig speculation = {};
    DraftConfig draft = {};
    // Blocks of the draft model, another FakeModel.
    int64_t draft_blocks = 256;
    std::optional<PoolingConfig> pooling = std::nullopt;  // if set, the engine pools rows of logits
  };

  explicit FakeEngine(const Options& options) {
    EngineLoop::Parts parts;
    if (options.has_device) {
      auto emulated = std::make_unique<EmulatedDevice>();
      device = emulated.get();
      parts.devices.push_back(std::move(emulated));
    }
    parts.pool = std::make_unique<ThreadPool>(options.num_threads);
    auto fake = std::make_unique<FakeModel>(options.block_size, options.num_blocks, options.groups);
    model = fake.get();
    model->most_in_flight = options.num_stages;
    parts.model = std::move(fake);
    kernels::KvLayout layout;
    layout.num_kv_heads = 1;
    layout.head_dim = 32;
    layout.block_size = options.block_size;
    parts.cache = std::make_unique<KvCache>(*KvCache::Allocate(layout, 1, options.num_blocks));
    EngineInfo info;
    info.model = model->config();
    info.max_model_len = options.max_model_len;
    info.max_num_seqs = options.max_num_seqs;
    info.end_tokens = {FakeModel::kEos};
    info.pooling = options.pooling;
    EnginePlan plan;
    plan.pooling = options.pooling;
    plan.config.enable_prefix_caching = options.prefix_caching;
    plan.config.loop = options.loop;
    plan.scheduler.block_size = options.block_size;
    plan.scheduler.max_num_batched_tokens = options.max_num_batched_tokens;
    plan.scheduler.max_num_seqs = options.max_num_seqs;
    plan.scheduler.max_prompt_logit_rows = options.max_prompt_logit_rows;
    plan.scheduler.chunked_prefill = true;
    plan.scheduler.num_stages = plan.scheduler.steps_in_flight = options.num_stages;
    plan.scheduler.groups = options.groups;
    plan.config.speculation = options.speculation;
    plan.config.draft = options.draft;
    if (plan.config.speculates()) plan.scheduler.max_proposed_tokens = 16;
    plan.num_blocks = options.num_blocks;
    if (options.draft.is_given()) {
      plan.draft = FakeDraftPlan(plan, options.draft_blocks, options.max_model_len);
      auto fake_draft = std::make_unique<FakeModel>(options.block_size, options.draft_blocks);
      draft = fake_draft.get();
      parts.draft = std::move(fake_draft);
    }
    engine = *EngineLoop::Start(std::move(parts), info, std::move(plan), &observer);
  }

  Result<RequestHandle> Submit(std::vector<int32_t> prompt, SamplingParams params,
                               const std::shared_ptr<CollectingSink>& sink, int n = 1) {
    Request request;
    request.id = "test";
    request.prompt = std::move(prompt);
    request.sampling = std::move(params);
    request.num_sequences = n;
    request.sink = sink;
    return engine->Submit(std::move(request));
  }

  // Runs one request to its end.
  std::shared_ptr<CollectingSink> Ask(std::vector<int32_t> prompt, SamplingParams params,
                                      int n = 1) {
    auto sink = std::make_shared<CollectingSink>(n);
    const auto handle = Submit(std::move(prompt), std::move(params), sink, n);
    EXPECT_TRUE(handle) << handle.error().message;
    EXPECT_TRUE(sink->WaitForEnd());
    return sink;
  }

  // Waits until the condition is true. Returns false after two minutes.
  template <typename Condition>
  bool Eventually(const Condition& condition) {
    for (int i = 0; i < 120000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  // Waits until everything has ended and the observer has the reports.
  bool WaitForIdle() {
    return Eventually([this] {
      return engine->num_unfinished() == 0 && observer.running == 0 && observer.waiting == 0 &&
             observer.used_blocks == 0;
    });
  }

  CountingObserver observer;
  EmulatedDevice* device = nullptr;
  FakeModel* model = nullptr;
  FakeModel* draft = nullptr;
  std::unique_ptr<Engine> engine;
};

inline SamplingParams GreedyFor(int64_t max_tokens) {
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = max_tokens;
  return params;
}

}  // namespace sluice::testing
