// Tests draws of tokens by a device, on the emulated device.
#include "models/device/device_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <numeric>

#include <gtest/gtest.h>

#include "kernels/sampling.h"
#include "models/device/device_model_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::DeviceOptions;
using testing::DeviceRunner;
using testing::LogitRows;
using testing::Runner;
using testing::SomeTokens;

// Mixes rows whose tokens the device draws with rows whose logits are wanted.
TEST(DeviceModelTest, DrawnRowsBringTheirTokensAndTheOthersTheirLogits) {
  DeviceRunner device(DataFolder("qwen3-bf16"), DeviceOptions());
  Runner& runner = device.runner();
  ASSERT_TRUE(runner.model().draws_tokens());
  const std::vector<int32_t> tokens = SomeTokens(30, 4);
  const LogitRows expected = runner.RunAlone(tokens, tokens.size());
  const std::vector<int32_t> table = runner.BlockTable(1), rows = {3, 4, 9, 20, 29};
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<kernels::AttentionSlice> slices = {
      {0, static_cast<int32_t>(tokens.size()), 0, table.data()}};
  std::vector<TokenDraw> draws(rows.size());
  for (const size_t drawn : {1, 2, 4}) {
    draws[drawn].is_wanted = true;
    draws[drawn].settings.top_p = 1;  // other settings are 0: draws the most likely token
  }
  const size_t vocabulary = expected[0].size();
  std::vector<float> logits(rows.size() * vocabulary, -1);
  runner.model().Forward(runner.pool(), {tokens, positions, slices, rows, 1, draws}, runner.cache(),
                         logits.data());
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<float>& row = expected[static_cast<size_t>(rows[i])];
    const auto begin = logits.begin() + static_cast<ptrdiff_t>(i * vocabulary);
    if (draws[i].is_wanted) {
      EXPECT_EQ(draws[i].token, kernels::ArgMax(row)) << i;
      EXPECT_EQ(draws[i].error, kernels::DrawError::kNone);
      EXPECT_EQ(*begin, -1) << "not copied";
    } else {
      EXPECT_TRUE(std::equal(row.begin(), row.end(), begin)) << i;
    }
  }
}

// Tests that masks, bias lists, counts and requests for logprobs reach the device, and that results
// come back. Some rows have one of these; one row has none.
TEST(DeviceModelTest, DrawsWithMasksListsAndLogprobs) {
  DeviceRunner device(DataFolder("qwen3-bf16"), DeviceOptions());
  Runner& runner = device.runner();
  const DrawLimits limits = runner.model().draw_limits();
  const std::vector<int32_t> tokens = SomeTokens(30, 4);
  const LogitRows all = runner.RunAlone(tokens, tokens.size());
  const auto vocabulary = static_cast<int64_t>(all[0].size());
  ASSERT_GE(limits.words, 4 * 96 + vocabulary / 16);
  ASSERT_EQ(limits.top, kernels::kMostTopLogits);
  const std::vector<int32_t> table = runner.BlockTable(1), rows = {3, 4, 9, 20, 29};
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<kernels::AttentionSlice> slices = {
      {0, static_cast<int32_t>(tokens.size()), 0, table.data()}};
  // The words contain: a mask of the upper half of the vocabulary, the same mask without its last
  // word, a bias, and a count.
  const auto mask_words = static_cast<size_t>((vocabulary + 31) / 32);
  std::vector<uint32_t> words(2 * mask_words, 0);
  for (size_t i = mask_words / 2; i < mask_words; ++i) words[i] = ~uint32_t{0};
  std::copy_n(words.begin(), mask_words - 1, words.begin() + static_cast<int64_t>(mask_words));
  const auto lists = static_cast<int32_t>(words.size());
  words.insert(words.end(), {7, std::bit_cast<uint32_t>(50.0f), 7, 2});
  std::vector<TokenDraw> draws(rows.size());
  std::vector<kernels::TopLogit> tops(3 * rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    draws[i].is_wanted = i != 1;
    draws[i].settings.top_p = 1;  // other settings are 0: draws the most likely token
    draws[i].top = std::span(tops).subspan(3 * i, 3);
  }
  kernels::DrawExtras& masked = draws[0].extras;
  masked.mask = 0;
  masked.draw_mask = static_cast<int32_t>(mask_words);
  masked.is_changed = 1;
  masked.logprobs = kernels::LogprobsOf::kRaw;
  masked.num_top = 3;
  kernels::DrawExtras& biased = draws[2].extras;
  biased.biases = lists;
  biased.counts = lists + 2;
  biased.num_biases = biased.num_counts = 1;
  biased.frequency = 1;
  biased.presence = 2;
  biased.is_changed = 1;
  biased.logprobs = kernels::LogprobsOf::kDrawn;
  biased.num_top = 1;
  draws[4].extras.logprobs = kernels::LogprobsOf::kRaw;
  std::vector<float> logits(rows.size() * static_cast<size_t>(vocabulary), -1);
  runner.model().Forward(runner.pool(), {tokens, positions, slices, rows, 1, draws, words},
                         runner.cache(), logits.data());
  const auto row = [&](size_t i) { return all[static_cast<size_t>(rows[i])]; };
  const auto best = [](std::span<const float> part) { return kernels::ArgMax(part); };

  const std::vector<float> first = row(0);
  const auto half = static_cast<int32_t>(mask_words / 2 * 32);
  const auto upper = std::span(first).subspan(static_cast<size_t>(half));
  EXPECT_EQ(draws[0].token, half + best(upper.first(upper.size() - 32)));
  std::vector<std::pair<int32_t, float>> top;
  kernels::TopK(upper, 3, top);
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(tops[k].token, half + top[k].first);
    EXPECT_EQ(tops[k].logit, top[k].second);
  }
  EXPECT_EQ(draws[0].logprobs.largest, top[0].second);
  EXPECT_EQ(draws[0].logprobs.chosen, first[static_cast<size_t>(draws[0].token)]);

  EXPECT_EQ(draws[1].token >= 0, true) << "a token that nobody takes";
  EXPECT_TRUE(std::ranges::equal(
      row(1), std::span(logits).subspan(static_cast<size_t>(vocabulary), first.size())));

  EXPECT_EQ(draws[2].token, 7);
  EXPECT_EQ(draws[2].logprobs.chosen, row(2)[7] + 50 - 2 - 2);
  EXPECT_EQ(draws[2].logprobs.rank, 1);
  EXPECT_EQ(tops[6].token, 7);
  EXPECT_EQ(tops[7].token, 0) << "not asked for";

  EXPECT_EQ(draws[3].token, best(row(3)));
  EXPECT_EQ(draws[4].token, best(row(4)));
  const kernels::LogSumExp sum = kernels::ComputeLogSumExp(row(4));
  EXPECT_EQ(draws[4].logprobs.largest, sum.largest);
  EXPECT_NEAR(std::log(draws[4].logprobs.sum), sum.log_sum, 1e-6);
  EXPECT_EQ(logits[0], -1) << "not copied";
}

// Three sequences decode before the host knows the drawn tokens: each step takes its tokens from
// the draws of the previous step, in a different order each time. The emulated device runs only
// when a caller waits for it.
TEST(DeviceModelTest, AStepTakesTheTokensThatTheOneInFlightDraws) {
  constexpr int kSequences = 3, kSteps = 6;
  DeviceRunner device(DataFolder("qwen3-bf16"), DeviceOptions());
  Runner& runner = device.runner();
  Model& model = runner.model();
  ASSERT_TRUE(model.takes_drawn_tokens());
  ASSERT_EQ(model.steps_in_flight(), 2);
  std::vector<std::vector<int32_t>> expected, prompts, tables;
  for (int s = 0; s < kSequences; ++s) {
    prompts.push_back(SomeTokens(5 + static_cast<size_t>(s), static_cast<uint64_t>(s) + 1));
    std::vector<int32_t> tokens = prompts.back();
    for (int i = 0; i <= kSteps; ++i)
      tokens.push_back(kernels::ArgMax(runner.RunAlone(tokens, tokens.size()).back()));
    expected.emplace_back(tokens.begin() + static_cast<ptrdiff_t>(prompts.back().size()),
                          tokens.end());
    tables.push_back(runner.BlockTable(s));
  }
  struct Step {
    std::vector<int> order;  // sequence of each row
    std::vector<TokenDraw> draws;
    std::vector<float> logits;
  };
  std::vector<Step> steps(kSteps + 1);
  const auto finish = [&](size_t index) {
    Step& step = steps[index];
    for (const TokenDraw& draw : step.draws) EXPECT_EQ(draw.token, -1) << "known too early";
    model.Finish(runner.pool());
    for (size_t i = 0; i < step.order.size(); ++i)
      EXPECT_EQ(step.draws[i].token, expected[static_cast<size_t>(step.order[i])][index]) << index;
  };
  for (size_t index = 0; index < steps.size(); ++index) {
    Step& step = steps[index];
    step.order = index % 3 == 2 ? std::vector<int>{2, 0, 1} : std::vector<int>{0, 1, 2};
    std::vector<int32_t> tokens, positions, rows;
    std::vector<kernels::AttentionSlice> slices;
    for (const int s : step.order) {
      const auto sequence = static_cast<size_t>(s);
      const auto prompt = static_cast<int32_t>(prompts[sequence].size());
      const int32_t context = index == 0 ? 0 : prompt + static_cast<int32_t>(index) - 1;
      const int32_t count = index == 0 ? prompt : 1;
      slices.push_back({std::ssize(tokens), count, context, tables[sequence].data()});
      for (int32_t k = 0; k < count; ++k) positions.push_back(context + k);
      if (index == 0) {
        tokens.insert(tokens.end(), prompts[sequence].begin(), prompts[sequence].end());
      } else {
        const std::vector<int>& before = steps[index - 1].order;
        const auto draw = std::find(before.begin(), before.end(), s) - before.begin();
        tokens.push_back(static_cast<int32_t>(-1 - draw));
      }
      rows.push_back(static_cast<int32_t>(tokens.size()) - 1);
      step.draws.emplace_back().is_wanted = true;
      step.draws.back().settings.top_p = 1;  // other settings are 0: draws the most likely token
    }
    step.logits.resize(rows.size() * static_cast<size_t>(model.config().vocab_size));
    model.Begin(runner.pool(), {tokens, positions, slices, rows, 1, step.draws}, runner.cache(),
                step.logits.data());
    if (index > 0) finish(index - 1);
  }
  finish(steps.size() - 1);
}

}  // namespace
}  // namespace sluice
