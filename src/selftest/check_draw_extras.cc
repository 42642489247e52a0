// Compares tokens drawn after penalties, biases and masks, and their logprobs, with the CPU's
// sampler.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "sampler/draw_planner.h"
#include "selftest/check_parts.h"

namespace sluice::selftest {

using checks::CaseMemory;
using checks::CheckRun;
using checks::Comparison;
using checks::TestNumbers;

namespace {

// Forbids every `step`-th token or, if `alone`, allows only these tokens.
class EveryMatcher final : public TokenMatcher {
 public:
  // Accepts any tokens until `num_before` tokens have been accepted.
  EveryMatcher(int64_t step, bool alone, int64_t num_before)
      : step_(step), alone_(alone), num_before_(num_before) {}
  bool Advance(int32_t token) override { return num_before_-- > 0 || Allows(token); }
  bool FillMask(std::span<uint32_t> mask) override {
    std::ranges::fill(mask, 0);
    for (size_t i = 0; i < 32 * mask.size(); ++i)
      mask[i / 32] |= Allows(static_cast<int32_t>(i)) ? 1u << (i % 32) : 0;
    return true;
  }
  void RollBack(int /*num_tokens*/) override {}
  void Reset() override {}
  bool is_finished() const override { return false; }

 private:
  bool Allows(int32_t token) const { return (token % step_ == 0) == alone_; }
  int64_t step_;
  bool alone_;
  int64_t num_before_;
};

// Settings for drawing a row.
struct Kind {
  SamplingParams params = {};
  int64_t constraint_step = 0;  // 0: none
  bool constraint_alone = false;
};

// Returns every kind of change and of logprobs separately, and some combinations.
std::vector<Kind> AllKinds(int64_t cols) {
  const auto token = [cols](int64_t i) { return static_cast<int32_t>(i % cols); };
  std::vector<Kind> kinds;
  const auto add = [&](const auto& change) { change(kinds.emplace_back()); };
  const auto bias = [&](Kind& kind) {
    kind.params.logit_bias = {{token(3), 4.25f}, {token(50), -100}, {token(77), 2.5f}};
  };
  const auto penalties = [](Kind& kind) {
    kind.params.repetition_penalty = 1.3;
    kind.params.frequency_penalty = 0.7;
    kind.params.presence_penalty = -0.4;
  };
  const auto allowed = [&](Kind& kind) {
    std::vector<int32_t> tokens;
    for (int64_t i = cols; i > 0; i -= 1 + i % 5) tokens.push_back(static_cast<int32_t>(i - 1));
    kind.params.allowed_token_ids = std::move(tokens);
  };
  const auto constrain = [](Kind& kind) { kind.constraint_step = 3; };
  add(bias);
  add(penalties);
  add([](Kind& kind) { kind.params.repetition_penalty = 0.8; });
  add(allowed);
  add(constrain);
  add([&](Kind& kind) {
    kind.params.bad_words = {{token(5)}, {token(9), token(6)}, {token(2), token(7)}, {token(5)}};
    kind.params.logit_bias = {{token(5), 50.0f}};
  });
  add([](Kind& kind) { kind.params.min_tokens = 20; });
  add([](Kind& kind) {  // overruled by a constraint that allows only the end tokens
    kind.params.min_tokens = 20;
    kind.constraint_step = std::numeric_limits<int32_t>::max();
    kind.constraint_alone = true;
  });
  add([&](Kind& kind) {
    constrain(kind);
    kind.params.allowed_token_ids = std::vector<int32_t>{0};  // the constraint forbids this token
  });
  for (const LogprobsMode mode : {LogprobsMode::kRawLogprobs, LogprobsMode::kProcessedLogprobs,
                                  LogprobsMode::kRawLogits, LogprobsMode::kProcessedLogits}) {
    const auto logprobs = [&](Kind& kind, int num_top) {
      kind.params.logprobs = num_top;
      kind.params.logprobs_mode = mode;
    };
    add([&](Kind& kind) { logprobs(kind, 0); });
    add([&](Kind& kind) { logprobs(kind, 20); });
    add([&](Kind& kind) {  // so many top logits that they include tokens with penalties
      logprobs(kind, kernels::kMostTopLogits);
      penalties(kind);
    });
    add([&](Kind& kind) {
      logprobs(kind, kernels::kMostTopLogits);
      kind.params.top_k = 7;
      kind.params.top_p = 0.9;
    });
    add([&](Kind& kind) {
      logprobs(kind, 5);
      bias(kind), penalties(kind), allowed(kind), constrain(kind);
      kind.params.min_p = 0.01;
    });
  }
  return kinds;
}

std::vector<float> RowOf(TestNumbers& numbers, size_t i, int64_t cols) {
  if (i % 4 == 1) return numbers.Integers(cols, 4);  // many logits are equal
  std::vector<float> row = numbers.Normals(cols);
  for (float& logit : row) logit *= i % 4 == 3 ? 12.0f : 3.0f;
  return row;
}

// Returns the maximum difference of two logprobs whose sums have different orders and use different
// exponential functions. The logarithm of the sum, up to 16, is rounded to F32, and so is the
// difference.
double LogprobError(float logprob) {
  constexpr double kSum = 0x1p-21, kLogarithm = 0x1p-20;
  return kSum + kLogarithm + 0x1p-23 * std::abs(static_cast<double>(logprob));
}

void CompareLogprobs(Comparison& comparison, const TokenLogprobs& got,
                     const TokenLogprobs& expected) {
  const auto compare = [&](float a, float b) {
    if (std::isinf(b) || std::isinf(a))
      comparison.AddEqual(a == b, 1);
    else
      comparison.AddWithin(a, b, LogprobError(b));
  };
  compare(got.logprob, expected.logprob);
  comparison.AddEqual(got.rank, expected.rank);
  comparison.AddEqual(std::ssize(got.top), std::ssize(expected.top));
  for (size_t i = 0; i < std::min(got.top.size(), expected.top.size()); ++i) {
    comparison.AddEqual(got.top[i].first, expected.top[i].first);
    compare(got.top[i].second, expected.top[i].second);
  }
}

// A step with rows of all kinds, each both greedy and random.
struct ChangedDraws {
  int64_t cols = 0;
  ThreadPool pool{1};
  std::vector<Kind> kinds = {};
  std::vector<std::vector<float>> rows = {};
  std::vector<int32_t> tokens = {};
  int64_t num_prompt_tokens = 0;

  explicit ChangedDraws(int64_t num_cols) : cols(num_cols) {
    TestNumbers numbers(17);
    for (const double temperature : {0.0, 0.8}) {
      for (Kind& kind : AllKinds(cols)) {
        kind.params.temperature = temperature;
        kinds.push_back(std::move(kind));
        rows.push_back(RowOf(numbers, rows.size(), cols));
      }
    }
    num_prompt_tokens = 40;
    for (int i = 0; i < 52; ++i)
      tokens.push_back(static_cast<int32_t>(numbers.Bits() % static_cast<uint64_t>(cols)));
    tokens.push_back(static_cast<int32_t>(2 % cols));  // the first token of a bad word
  }

  SequenceSampling Sequence(size_t i) const {
    SequenceSampling sequence;
    sequence.params = &kinds[i].params;
    sequence.seed = i;
    sequence.end_tokens = std::vector<int32_t>{0, static_cast<int32_t>(cols / 2)};
    if (kinds[i].constraint_step > 0) {
      const auto num_before = static_cast<int64_t>(tokens.size()) - num_prompt_tokens;
      sequence.matcher = std::make_shared<SequenceMatcher>(std::make_unique<EveryMatcher>(
          kinds[i].constraint_step, kinds[i].constraint_alone, num_before));
    }
    return sequence;
  }
};

void CheckChanged(CaseMemory& memory, Comparison& comparison, ChangedDraws& draws) {
  const auto rows = std::ssize(draws.rows);
  Sampler sampler(draws.cols, 1);
  DrawPlanner planner(draws.cols, int64_t{1} << 20, kernels::kMostTopLogits);
  std::vector<SequenceSampling> sequences;
  for (size_t i = 0; i < draws.rows.size(); ++i) sequences.push_back(draws.Sequence(i));
  const TokenHistory history = {draws.tokens, draws.num_prompt_tokens};
  std::vector<DrawJob> jobs;
  for (SequenceSampling& sequence : sequences) {
    jobs.push_back({.sequence = &sequence,
                    .history = history,
                    .num_output_tokens = std::ssize(history.output())});
  }
  planner.Plan(draws.pool, jobs);
  std::vector<float> logits;
  std::vector<kernels::DrawSettings> settings;
  std::vector<kernels::DrawExtras> extras;
  for (size_t i = 0; i < jobs.size(); ++i) {
    CHECK(jobs[i].is_possible);
    logits.insert(logits.end(), draws.rows[i].begin(), draws.rows[i].end());
    settings.push_back(jobs[i].settings);
    extras.push_back(jobs[i].extras);
  }
  constexpr int64_t kMostTop = kernels::kMostTopLogits;
  auto* tokens = memory.Out<int32_t>(rows);
  auto* errors = memory.Out<kernels::DrawError>(rows);
  auto* logprobs = memory.Out<kernels::DrawnLogprobs>(rows);
  auto* tops = memory.Out<kernels::TopLogit>(rows * kMostTop);
  memory.Launch(
      &device::DeviceKernels::sample_rows,
      {.logits = memory.InOut(logits),
       .rows = rows,
       .cols = draws.cols,
       .settings = memory.In(settings),
       .tokens = tokens,
       .errors = errors,
       .extras = memory.In(extras),
       .words = memory.InOut(std::vector<uint32_t>(planner.words().begin(), planner.words().end())),
       .logprobs = logprobs,
       .tops = tops,
       .most_top = kMostTop});
  const auto got_tokens = memory.Read(tokens, rows);
  const auto got_errors = memory.Read(errors, rows);
  const auto got_logprobs = memory.Read(logprobs, rows);
  const auto got_tops = memory.Read(tops, rows * kMostTop);
  for (size_t i = 0; i < jobs.size(); ++i) {
    SampleJob expected{draws.rows[i], &sequences[i], history, -1, {}, {}};
    sampler.Sample(draws.pool, {&expected, 1});
    SampleJob got{draws.rows[i], &sequences[i], history, -1, {}, {}};
    const auto top = std::span(got_tops)
                         .subspan(i * kMostTop)
                         .first(static_cast<size_t>(jobs[i].extras.num_top));
    SetDrawn(got, got_tokens[i], got_errors[i], got_logprobs[i], top);
    comparison.AddEqual(got.token, expected.token);
    comparison.AddEqual(got.error == expected.error, 1);
    comparison.AddEqual(got.is_request_error, expected.is_request_error);
    if (!expected.error.empty() || !draws.kinds[i].params.logprobs) continue;
    CompareLogprobs(comparison, got.logprobs, expected.logprobs);
  }
}

}  // namespace

void CheckDrawExtras(CheckRun& run) {
  const auto add = [&](int64_t cols, bool is_slow) {
    ChangedDraws draws(cols);
    const auto check = [&](CaseMemory& memory, Comparison& comparison) {
      CheckChanged(memory, comparison, draws);
    };
    std::string shape =
        fmt::format("{} x {}, penalties, biases, masks, logprobs", draws.rows.size(), cols);
    if (is_slow)
      run.SlowCase("sample_rows", std::move(shape), check);
    else
      run.Case("sample_rows", std::move(shape), check);
  };
  add(100, false);
  if (run.with_all_shapes()) add(45, false);
  add(2100, true);
  if (run.with_large_shapes()) add(128256, false);
}

}  // namespace sluice::selftest
