#include "sampler/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include <gtest/gtest.h>

#include "kernels/block_maxima.h"
#include "sampler/philox.h"

namespace sluice {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Samples from a row; `prompt` and `output` are the history.
class Row {
 public:
  explicit Row(std::vector<float> logits, std::vector<int32_t> prompt = {0},
               std::vector<int32_t> output = {})
      : logits_(std::move(logits)),
        num_prompt_(static_cast<int64_t>(prompt.size())),
        tokens_(std::move(prompt)),
        sampler_(static_cast<int64_t>(logits_.size()), 1) {
    tokens_.insert(tokens_.end(), output.begin(), output.end());
  }

  // Samples with the maxima of the logits' blocks. Without a matcher, whose state sampling would
  // change, samples without the maxima as well and compares.
  SampleJob Sample(const SamplingParams& params, uint64_t seed = 0,
                   const std::vector<int32_t>& end_tokens = {}) {
    std::vector<float> maxima(static_cast<size_t>(kernels::NumMaxima(std::ssize(logits_))));
    kernels::FindMaxima(logits_.data(), 0, 1, std::ssize(logits_), {maxima.data(), 0});
    const bool is_free = matcher_ == nullptr;
    const SampleJob job = Sample(params, seed, end_tokens, maxima);
    if (is_free) {
      const SampleJob other = Sample(params, seed, end_tokens, {});
      EXPECT_EQ(job.token, other.token);
      EXPECT_EQ(job.error, other.error);
      EXPECT_EQ(job.is_request_error, other.is_request_error);
      EXPECT_EQ(job.logprobs.top, other.logprobs.top);
    }
    return job;
  }

  SampleJob Sample(const SamplingParams& params, uint64_t seed, std::vector<int32_t> end_tokens,
                   std::span<const float> maxima) {
    SequenceSampling sequence;
    sequence.params = &params;
    sequence.seed = seed;
    sequence.end_tokens = std::move(end_tokens);
    if (matcher_ != nullptr)
      sequence.matcher = std::make_shared<SequenceMatcher>(std::exchange(matcher_, nullptr));
    SampleJob job{logits_, &sequence, {tokens_, num_prompt_}, -1, {}, {}};
    job.maxima = maxima;
    sampler_.Sample(pool_, {&job, 1});
    job.sequence = nullptr;
    return job;
  }

  // Constrains the next Sample by `matcher`.
  Row& Constrain(std::unique_ptr<TokenMatcher> matcher) {
    matcher_ = std::move(matcher);
    return *this;
  }

  // Returns the number of occurrences of each token in `draws` draws.
  std::vector<int> Count(const SamplingParams& params, int draws) {
    std::vector<int> counts(logits_.size());
    for (int i = 0; i < draws; ++i) {
      const SampleJob job = Sample(params, static_cast<uint64_t>(i) * 977 + 5);
      EXPECT_GE(job.token, 0);
      ++counts[static_cast<size_t>(job.token)];
    }
    return counts;
  }

 private:
  std::vector<float> logits_;
  int64_t num_prompt_;
  std::vector<int32_t> tokens_;
  std::unique_ptr<TokenMatcher> matcher_;
  ThreadPool pool_{1};
  Sampler sampler_;
};

// Allows the tokens `allowed`, until it has accepted `end`.
class ListMatcher final : public TokenMatcher {
 public:
  ListMatcher(std::vector<int32_t> allowed, int32_t end, int* num_masks = nullptr)
      : allowed_(std::move(allowed)), end_(end), num_masks_(num_masks) {}
  bool Advance(int32_t token) override {
    if (std::ranges::find(allowed_, token) == allowed_.end()) return false;
    is_finished_ = token == end_;
    return true;
  }
  bool FillMask(std::span<uint32_t> mask) override {
    if (num_masks_ != nullptr) ++*num_masks_;
    std::ranges::fill(mask, 0);
    for (const int32_t token : allowed_) mask[token / 32] |= 1u << (token % 32);
    return !allowed_.empty();
  }
  void RollBack(int) override {}
  void Reset() override {}
  bool is_finished() const override { return is_finished_; }

 private:
  const std::vector<int32_t> allowed_;
  const int32_t end_;
  int* const num_masks_;  // number of masks filled
  bool is_finished_ = false;
};

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

std::vector<float> RandomLogits(size_t count, unsigned seed, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// Returns the expected probabilities, computed in the simplest way: a full sort in double.
std::vector<double> PlainProbabilities(const std::vector<float>& logits,
                                       const SamplingParams& params) {
  const size_t count = logits.size();
  std::vector<double> x(logits.begin(), logits.end());
  for (double& value : x) value /= params.temperature;
  const double largest = *std::max_element(x.begin(), x.end());
  std::vector<double> p(count);
  for (size_t i = 0; i < count; ++i) p[i] = std::exp(x[i] - largest);
  if (params.min_p > 0) {
    for (double& value : p) value = value < params.min_p ? 0 : value;
  }
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
  if (params.top_k > 0 && params.top_k < static_cast<int64_t>(count)) {
    const double kth = p[order[static_cast<size_t>(params.top_k) - 1]];
    for (double& value : p) value = value < kth ? 0 : value;
  }
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  double before = 0;
  for (const size_t i : order) {
    const double own = p[i];
    if (params.top_p < 1 && before >= params.top_p * total) p[i] = 0;
    before += own;
  }
  const double left = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= left;
  return p;
}

// Chi-square test of the counts; bins with small expected counts are merged.
void ExpectFollows(const std::vector<int>& counts, const std::vector<double>& p, int draws) {
  double chi_square = 0, rest_expected = 0, rest_count = 0;
  int bins = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " was cut off";
      continue;
    }
    const double expected = p[i] * draws;
    if (expected < 8) {
      rest_expected += expected;
      rest_count += counts[i];
      continue;
    }
    chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++bins;
  }
  if (rest_expected > 8) {
    chi_square += (rest_count - rest_expected) * (rest_count - rest_expected) / rest_expected;
    ++bins;
  }
  const double freedom = std::max(1, bins - 1);
  EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom) + 5);
}

TEST(Philox, KnownAnswers) {
  // From the authors' distribution (kat_vectors, philox4x32 10).
  const std::array<uint32_t, 4> zero = Philox({0, 0, 0, 0}, {0, 0});
  EXPECT_EQ(zero, (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::array<uint32_t, 4> ones = Philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u});
  EXPECT_EQ(ones, (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Sampler, GreedyTakesTheLowestOfEquals) {
  EXPECT_EQ(Row({1, 3, 3, 2}).Sample(Greedy()).token, 1);
}

TEST(Sampler, FollowsTheSoftmax) {
  SamplingParams params;
  const std::vector<float> logits = RandomLogits(50, 1, 1.5f);
  ExpectFollows(Row(logits).Count(params, 20000), PlainProbabilities(logits, params), 20000);
}

TEST(Sampler, FollowsTheCutsInTheirOrder) {
  const std::vector<float> logits = RandomLogits(700, 2, 2);
  for (const double temperature : {0.5, 1.0, 1.7}) {
    for (const double top_p : {1.0, 0.9, 0.3}) {
      for (const int64_t top_k : {0, 1, 20, 5000}) {
        for (const double min_p : {0.0, 0.05}) {
          SamplingParams params;
          params.temperature = temperature;
          params.top_p = top_p;
          params.top_k = top_k;
          params.min_p = min_p;
          SCOPED_TRACE(::testing::Message()
                       << temperature << " " << top_p << " " << top_k << " " << min_p);
          ExpectFollows(Row(logits).Count(params, 2000), PlainProbabilities(logits, params), 2000);
        }
      }
    }
  }
}

// Row::Sample compares results with and without maxima.
TEST(Sampler, MaximaOfBlocksMakeNoDifference) {
  for (const float spread : {0.0f, 0.4f, 3.0f, 40.0f}) {
    std::vector<float> logits = RandomLogits(20011, 11, spread);
    for (size_t i = 0; i < logits.size(); i += 2) logits[i] = std::round(logits[i] * 4) / 4;
    std::fill_n(logits.begin() + 640, 130, -std::numeric_limits<float>::infinity());
    Row row(logits);
    for (const double top_p : {1.0, 0.95, 0.2}) {
      for (const int64_t top_k : {0, 1, 40, 300, 700, 15000}) {
        for (const double min_p : {0.0, 0.1}) {
          SamplingParams params;
          params.temperature = 0.8;
          params.top_p = top_p;
          params.top_k = top_k;
          params.min_p = min_p;
          SCOPED_TRACE(::testing::Message()
                       << spread << " " << top_p << " " << top_k << " " << min_p);
          SamplingParams with_weights = params;
          with_weights.logprobs = 0;
          with_weights.logprobs_mode = LogprobsMode::kProcessedLogits;
          for (uint64_t seed = 0; seed < 3; ++seed) {
            const int32_t token = row.Sample(params, seed).token;
            EXPECT_GE(token, 0);
            EXPECT_EQ(token, row.Sample(with_weights, seed).token);
          }
        }
      }
    }
  }
}

TEST(Sampler, EdgesOfTheCuts) {
  SamplingParams params;
  params.top_p = 1e-9;  // only the most likely token
  EXPECT_EQ(Row({1, 5, 2}).Count(params, 100)[1], 100);
  params = {};
  params.min_p = 1;
  EXPECT_EQ(Row({1, 5, 2}).Count(params, 100)[1], 100);
  params = {};
  params.top_k = 1;
  const std::vector<int> equals = Row({5, 5, 2}).Count(params, 400);
  EXPECT_GT(equals[0], 100) << "equals of the k-th stay";
  EXPECT_GT(equals[1], 100);
  EXPECT_EQ(equals[2], 0);
  params = {};
  params.top_p = 0.5;  // four equal logits: the two lowest ids
  const std::vector<int> half = Row({1, 1, 1, 1}).Count(params, 400);
  EXPECT_EQ(half[2] + half[3], 0);
  EXPECT_GT(half[1], 100);
  params = {};
  params.temperature = 0.01;
  EXPECT_EQ(Row({4.9f, 5.5f, -1000}).Count(params, 100)[1], 100);
}

// 1 / 1e-300 overflows float.
TEST(Sampler, ATinyTemperatureIsTheSmallestThatCounts) {
  SamplingParams smallest, tiny;
  smallest.temperature = kSmallestTemperature;
  tiny.temperature = 1e-300;
  for (SamplingParams* params : {&smallest, &tiny}) {
    params->logprobs = 2;
    params->logprobs_mode = LogprobsMode::kProcessedLogprobs;
  }
  const std::vector<float> logits = {4.9f, 5.5f, 5.495f, -1000};
  Row row(logits);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const SampleJob job = row.Sample(tiny, seed), expected = row.Sample(smallest, seed);
    EXPECT_NE(job.token, 0);
    EXPECT_EQ(job.token, expected.token);
    EXPECT_EQ(job.logprobs.logprob, expected.logprobs.logprob);
    EXPECT_EQ(job.logprobs.top, expected.logprobs.top);
  }
  tiny.logprobs.reset();
  EXPECT_EQ(row.Count(tiny, 400), row.Count(smallest, 400));
}

TEST(Sampler, LargeVocabularyAndFlatRow) {
  SamplingParams params;
  params.top_p = 0.8;
  const std::vector<float> logits = RandomLogits(128256, 3, 2);
  const std::vector<double> p = PlainProbabilities(logits, params);
  Row row(logits);
  for (int i = 0; i < 50; ++i) {
    const int32_t token = row.Sample(params, static_cast<uint64_t>(i)).token;
    ASSERT_GE(token, 0);
    ASSERT_LT(token, 128256);
    EXPECT_GT(p[static_cast<size_t>(token)], 0);
  }
  params.top_k = 50000;
  EXPECT_GE(row.Sample(params, 1).token, 0);
  EXPECT_LT(Row(std::vector<float>(128256, 1.0f)).Sample(params, 9).token, 128256);
}

TEST(Sampler, SeedAndPositionDecideAlone) {
  const std::vector<float> logits = RandomLogits(1000, 4, 1);
  SamplingParams params;
  const int32_t token = Row(logits).Sample(params, 42).token;
  EXPECT_EQ(Row(logits).Sample(params, 42).token, token);
  std::vector<int32_t> later;
  for (int n = 1; n < 6; ++n)
    later.push_back(
        Row(logits, {0}, std::vector<int32_t>(static_cast<size_t>(n))).Sample(params, 42).token);
  EXPECT_NE(later, std::vector<int32_t>(5, token));

  // A batch on several threads draws the same tokens.
  ThreadPool pool(3);
  Sampler sampler(1000, 3);
  std::vector<SequenceSampling> sequences(64);
  std::vector<SampleJob> jobs(64);
  const std::vector<int32_t> prompt = {0};
  for (size_t i = 0; i < jobs.size(); ++i) {
    sequences[i].params = &params;
    sequences[i].seed = i;
    jobs[i] = {logits, &sequences[i], {prompt, 1}, -1, {}, {}};
  }
  sampler.Sample(pool, jobs);
  EXPECT_EQ(jobs[42].token, token);
}

TEST(Sampler, MasksAndBias) {
  SamplingParams params = Greedy();
  params.allowed_token_ids = {{3, 1, 3}};
  EXPECT_EQ(Row({9, 1, 8, 2, 7}).Sample(params).token, 3);
  params = Greedy();
  params.bad_words = {{0}, {7, 2}, {5, 4}};
  EXPECT_EQ(Row({9, 1, 8, 2, 7}, {0}, {5, 7}).Sample(params).token, 4)
      << "0 and, after 7, 2 are out; 4 not after 7";
  EXPECT_EQ(Row({9, 1, 8, 2, 7}, {7}).Sample(params).token, 2)
      << "the prompt does not begin a bad word";
  params = Greedy();
  params.min_tokens = 2;
  EXPECT_EQ(Row({9, 8}, {0}, {1}).Sample(params, 0, {0}).token, 1);
  EXPECT_EQ(Row({9, 8}, {0}, {1, 1}).Sample(params, 0, {0}).token, 0);
  params = Greedy();
  params.logit_bias = {{0, 200}, {1, 150}};
  EXPECT_EQ(Row({1, 2, 3}).Sample(params).token, 1) << "both are clamped to 100";
}

// Computing a mask costs more than checking one token. The choice is the same.
TEST(Sampler, TheGreedyChoiceNeedsNoMaskWhereItIsAllowed) {
  std::vector<float> logits = RandomLogits(128, 11);
  logits[7] = logits[20] = logits[90] = 50;
  const auto choose = [&](std::vector<int32_t> allowed, const SamplingParams& params) {
    int num_masks = 0;
    Row row(logits);
    row.Constrain(std::make_unique<ListMatcher>(std::move(allowed), 100, &num_masks));
    return std::pair(row.Sample(params, 0, {100}).token, num_masks);
  };
  EXPECT_EQ(choose({90, 7, 20, 100}, Greedy()), std::pair(7, 0));
  EXPECT_EQ(choose({90, 20, 100}, Greedy()), std::pair(20, 1)) << "7 is larger, but not allowed";
  SamplingParams params = Greedy();
  params.logit_bias = {{3, 100}};
  EXPECT_EQ(choose({90, 7, 3}, params), std::pair(3, 1)) << "other logits than the model's";
  params = Greedy();
  params.logprobs = 2;
  EXPECT_EQ(choose({90, 7}, params), std::pair(7, 1)) << "logprobs are of what is allowed";
  params = SamplingParams();
  EXPECT_EQ(choose({90}, params), std::pair(90, 1));
}

TEST(Sampler, AConstraintLeavesWhatItAllows) {
  std::vector<float> logits(70, 0.0f);
  logits[3] = 5;
  logits[40] = 4;
  logits[69] = 3;
  Row row(logits);
  const auto allow = [](std::vector<int32_t> allowed) {
    return std::make_unique<ListMatcher>(std::move(allowed), 50);
  };
  EXPECT_EQ(row.Constrain(allow({40, 69, 50})).Sample(Greedy()).token, 40);
  EXPECT_EQ(row.Constrain(allow({69, 50})).Sample(Greedy()).token, 69);
  EXPECT_EQ(row.Sample(Greedy()).token, 3);

  // The constraint applies together with other masks.
  SamplingParams params = Greedy();
  params.logit_bias = std::vector<std::pair<int32_t, float>>{{3, 100.0f}, {69, 2.0f}};
  EXPECT_EQ(row.Constrain(allow({40, 69, 50})).Sample(params).token, 69);
  params.allowed_token_ids = SharedList<int32_t>(std::vector<int32_t>{3});
  EXPECT_FALSE(row.Constrain(allow({40, 69, 50})).Sample(params).error.empty());

  // Logprobs cover only the allowed tokens.
  params = Greedy();
  params.logprobs = 3;
  const SampleJob job = row.Constrain(allow({40, 69})).Sample(params);
  EXPECT_EQ(job.logprobs.rank, 1);
  EXPECT_NEAR(std::exp(job.logprobs.logprob), std::exp(4) / (std::exp(4) + std::exp(3)), 1e-5);
  EXPECT_EQ(job.logprobs.top[2].second, -kInfinity);

  EXPECT_FALSE(row.Constrain(allow({})).Sample(Greedy()).error.empty());
}

TEST(Sampler, AConstraintThatOnlyLetsTheAnswerEndOverrulesMinTokens) {
  SamplingParams params = Greedy();
  params.min_tokens = 5;
  Row row({0, 1, 2, 3});
  EXPECT_EQ(
      row.Constrain(std::make_unique<ListMatcher>(std::vector{3}, 3)).Sample(params, 0, {3}).token,
      3);
  EXPECT_EQ(row.Constrain(std::make_unique<ListMatcher>(std::vector{1, 3}, 3))
                .Sample(params, 0, {3})
                .token,
            1);
}

TEST(Sampler, AConstraintTakesTheTokensSoFarAndEndsWithAnEndToken) {
  const auto allow = [] { return std::make_unique<ListMatcher>(std::vector{1, 2}, 2); };
  EXPECT_EQ(Row({0, 1, 0, 3}, {0}, {1, 1}).Constrain(allow()).Sample(Greedy()).token, 1);
  EXPECT_EQ(Row({0, 1, 0, 3}, {0}, {1, 2}).Constrain(allow()).Sample(Greedy()).token, 3);
  EXPECT_FALSE(Row({0, 1, 0, 3}, {0}, {1, 0}).Constrain(allow()).Sample(Greedy()).error.empty());
}

TEST(Sampler, PenaltiesEqualThePlainForm) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    const size_t vocab = 40;
    std::vector<float> logits = RandomLogits(vocab, static_cast<unsigned>(round));
    std::vector<int32_t> prompt(random() % 30 + 1), output(random() % 200);
    for (int32_t& token : prompt) token = static_cast<int32_t>(random() % vocab);
    for (int32_t& token : output) token = static_cast<int32_t>(random() % vocab);
    SamplingParams params = Greedy();
    params.repetition_penalty = 1.3;
    params.frequency_penalty = 0.1 * static_cast<double>(random() % 3);
    params.presence_penalty = 0.5;
    std::vector<int32_t> all = prompt;
    all.insert(all.end(), output.begin(), output.end());
    std::vector<float> want = logits;
    for (size_t token = 0; token < vocab; ++token) {
      const auto id = static_cast<int32_t>(token);
      const auto times = std::count(output.begin(), output.end(), id);
      const bool seen = std::count(all.begin(), all.end(), id) > 0;
      if (seen) want[token] = want[token] > 0 ? want[token] / 1.3f : want[token] * 1.3f;
      want[token] -= static_cast<float>(params.frequency_penalty) * static_cast<float>(times);
      if (times > 0) want[token] -= 0.5f;
    }
    TokenCounts counts;
    // The update is done in two parts, as when the sequence grows.
    counts.Update(std::span(all).first(prompt.size() + output.size() / 2),
                  static_cast<int64_t>(prompt.size()));
    ProcessLogits(params, {all, static_cast<int64_t>(prompt.size())}, {}, counts, logits);
    EXPECT_EQ(logits, want);
  }
}

TEST(Sampler, LogprobsAreThoseOfTheRawLogits) {
  SamplingParams params = Greedy();
  params.logprobs = 2;
  params.logit_bias = {{2, 50}};
  const SampleJob job = Row({1, 3, 2}).Sample(params);
  EXPECT_EQ(job.token, 2);
  const double sum = std::log(std::exp(1.0) + std::exp(3.0) + std::exp(2.0));
  EXPECT_NEAR(job.logprobs.logprob, 2 - sum, 1e-5);
  EXPECT_EQ(job.logprobs.token, 2);
  EXPECT_EQ(job.logprobs.rank, 2);
  ASSERT_EQ(job.logprobs.top.size(), 2u);
  EXPECT_EQ(job.logprobs.top[0].first, 1);
  EXPECT_NEAR(job.logprobs.top[0].second, 3 - sum, 1e-5);
  EXPECT_EQ(job.logprobs.top[1].first, 2);
  params.logprobs = -1;
  EXPECT_EQ(Row({1, 3, 2}).Sample(params).logprobs.top.size(), 3u);
  params.logprobs = 0;
  EXPECT_TRUE(Row({1, 3, 2}).Sample(params).logprobs.top.empty());
}

TEST(Sampler, LogprobsOfListedTokens) {
  SamplingParams params = Greedy();
  params.logprobs = 2;
  params.logprob_token_ids = std::vector<int32_t>{2, 0};
  const SampleJob job = Row({1, 3, 2, 4}).Sample(params);
  SamplingParams all = Greedy();
  all.logprobs = -1;
  const SampleJob expected = Row({1, 3, 2, 4}).Sample(all);
  EXPECT_EQ(job.token, 3);
  EXPECT_EQ(job.logprobs.logprob, expected.logprobs.logprob);
  EXPECT_EQ(job.logprobs.rank, 1);
  using Entries = std::vector<std::pair<int32_t, float>>;
  EXPECT_EQ(job.logprobs.top, (Entries{expected.logprobs.top[2], expected.logprobs.top[3]}))
      << "in the order of the list, with the bits of the same tokens among the best";
}

TEST(Sampler, LogprobsOfWhatWasDrawnFrom) {
  SamplingParams params = Greedy();
  params.logprobs = 3;
  params.logprobs_mode = LogprobsMode::kProcessedLogprobs;
  params.logit_bias = {{2, 2}};
  // Greedy: the bias applies, and there is no temperature.
  SampleJob job = Row({1, 3, 2}).Sample(params);
  EXPECT_EQ(job.token, 2);
  EXPECT_NEAR(job.logprobs.logprob, 4 - std::log(std::exp(1.0) + std::exp(3.0) + std::exp(4.0)),
              1e-5);
  EXPECT_EQ(job.logprobs.rank, 1);
  // Drawn: logits are divided by the temperature, and tokens that were cut are -infinity.
  params.temperature = 0.5;
  params.top_k = 2;
  job = Row({1, 3, 2}).Sample(params);
  const double sum = std::log(std::exp(6.0) + std::exp(8.0));
  EXPECT_EQ(job.logprobs.top[0].first, 2);
  EXPECT_NEAR(job.logprobs.top[0].second, 8 - sum, 1e-5);
  EXPECT_NEAR(job.logprobs.top[1].second, 6 - sum, 1e-5);
  EXPECT_EQ(job.logprobs.top[2].second, -kInfinity);
  params.logprobs_mode = LogprobsMode::kProcessedLogits;
  job = Row({1, 3, 2}).Sample(params);
  EXPECT_FLOAT_EQ(job.logprobs.top[0].second, 8);
  params.logprobs_mode = LogprobsMode::kRawLogits;
  job = Row({1, 3, 2}).Sample(params);
  EXPECT_EQ(job.logprobs.top[0], (std::pair<int32_t, float>{1, 3.0f}));
}

TEST(Sampler, BadLogitsFailThatRowAlone) {
  const float nan = std::nanf("");
  SamplingParams params;
  EXPECT_NE(Row({1, nan, 2}).Sample(params).error, "");
  EXPECT_NE(Row({1, nan, 2}).Sample(Greedy()).error, "");
  EXPECT_NE(Row({-kInfinity, -kInfinity}).Sample(params).error, "");
  EXPECT_NE(Row({kInfinity, 1}).Sample(params).error, "");
  EXPECT_EQ(Row({-kInfinity, 1}).Sample(params).token, 1);
  params.allowed_token_ids = {{0}};
  params.bad_words = {{0}};
  const SampleJob none_left = Row({1, 2}).Sample(params);
  EXPECT_NE(none_left.error.find("allowed_token_ids"), std::string_view::npos);
  EXPECT_TRUE(none_left.is_request_error);
  EXPECT_FALSE(Row({1, nan, 2}).Sample(params).is_request_error);

  ThreadPool pool(2);
  Sampler sampler(2, 2);
  const std::vector<float> good = {1, 2}, bad = {nan, nan};
  const SamplingParams greedy = Greedy();
  SequenceSampling sequence, other;
  sequence.params = other.params = &greedy;
  const std::vector<int32_t> prompt = {0};
  SampleJob jobs[2] = {{good, &sequence, {prompt, 1}, -1, {}, {}},
                       {bad, &other, {prompt, 1}, -1, {}, {}}};
  sampler.Sample(pool, jobs);
  EXPECT_EQ(jobs[0].token, 1);
  EXPECT_TRUE(jobs[0].error.empty());
  EXPECT_FALSE(jobs[1].error.empty());
}

TEST(Sampler, PromptLogprobs) {
  ThreadPool pool(2);
  Sampler sampler(3, 2);
  const std::vector<float> row = {1, 3, 2};
  PromptLogprobJob jobs[2] = {{row, 0, 1, {}, {}}, {row, 1, -1, {}, {}}};
  sampler.PromptLogprobs(pool, jobs);
  EXPECT_EQ(jobs[0].logprobs.rank, 3);
  EXPECT_EQ(jobs[0].logprobs.top[0].first, 1);
  EXPECT_EQ(jobs[1].logprobs.top.size(), 3u);
}

}  // namespace
}  // namespace sluice
