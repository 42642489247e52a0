#include "simulation/simulated_model.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr int kVocab = 64;
constexpr int32_t kEnd = 63;

std::unique_ptr<SimulatedModel> Make(int64_t mean_output = 0, bool sleeps = false) {
  ModelConfig config;
  config.vocab_size = config.spec.vocab_size = kVocab;
  StepCosts costs;
  costs.stages.emplace_back();
  costs.stages[0].dense[0] = {.bytes = 48e9, .row_operations = 0};
  costs.vocab_size = kVocab;
  DeviceProfile device = FindDevices("H200")->device;
  device.factors = {};
  device.factors[static_cast<size_t>(StepPart::kWeights)] = 1;  // a step takes 10 ms
  auto model =
      SimulatedModel::Create(config, StepClock(device, costs),
                             {.mean_output = mean_output, .end_tokens = {kEnd}, .sleeps = sleeps});
  EXPECT_TRUE(model);
  return *std::move(model);
}

// A step of one sequence with one token, and its draw.
struct OneRow {
  std::vector<int32_t> tokens{7}, positions{3}, rows{0};
  std::vector<kernels::AttentionSlice> slices{1};
  std::vector<TokenDraw> draws{1};
  std::vector<uint32_t> words = std::vector<uint32_t>(8);

  OneRow() {
    slices[0].num_tokens = 1;
    slices[0].context = 3;
    draws[0].is_wanted = true;
    draws[0].settings = {.scale = 1, .farthest = 0, .top_k = 0, .top_p = 1, .uniform = 0.25};
  }
  int32_t Draw(SimulatedModel& model) {
    ThreadPool pool(1);
    KvCache cache = *KvCache::Allocate(kernels::KvLayout{.num_kv_heads = 1, .head_dim = 32}, 1, 1);
    StepInput input;
    input.tokens = tokens;
    input.positions = positions;
    input.slices = slices;
    input.logit_rows = rows;
    input.draws = draws;
    input.draw_words = words;
    model.Forward(pool, input, cache, nullptr);
    return draws[0].token;
  }
};

TEST(SimulatedModel, TheSameDrawGivesTheSameToken) {
  const auto model = Make();
  OneRow row, other;
  const int32_t token = row.Draw(*model);
  EXPECT_EQ(row.Draw(*model), token);
  EXPECT_EQ(row.Draw(*Make()), token);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 20; ++i) {
    other.draws[0].settings.uniform = 0.01 * i;
    tokens.push_back(other.Draw(*model));
    EXPECT_GE(tokens.back(), 0);
    EXPECT_LT(tokens.back(), kEnd) << "answers do not end by themselves";
  }
  std::ranges::sort(tokens);
  EXPECT_NE(tokens.front(), tokens.back());
}

TEST(SimulatedModel, AGreedyTokenFollowsFromTheLastOneAndItsPosition) {
  const auto model = Make();
  OneRow row;
  row.draws[0].settings.scale = 0;
  const int32_t token = row.Draw(*model);
  row.draws[0].settings.uniform = 0.9;
  EXPECT_EQ(row.Draw(*model), token);
}

TEST(SimulatedModel, MasksAndRemovedTokensAreRespected) {
  const auto model = Make();
  OneRow row;
  row.words[0] = 1u << 5 | 1u << 9;
  row.draws[0].extras = {.mask = 0, .draw_mask = 0, .is_changed = 1};
  for (int i = 0; i < 20; ++i) {
    row.draws[0].settings.uniform = 0.05 * i;
    const int32_t token = row.Draw(*model);
    EXPECT_TRUE(token == 5 || token == 9) << token;
  }
  // If a constraint allows the end token, the answer ends.
  row.words[1] = 1u << 31;
  EXPECT_EQ(row.Draw(*model), kEnd);
  // The answer does not end if the end token is removed, as before min_tokens.
  row.words[2] = kEnd;
  row.words[3] = std::bit_cast<uint32_t>(-std::numeric_limits<float>::infinity());
  row.draws[0].extras.biases = 2;
  row.draws[0].extras.num_biases = 1;
  EXPECT_NE(row.Draw(*model), kEnd);
  row.words[0] = row.words[1] = 0;
  EXPECT_EQ(row.Draw(*model), -1);
  EXPECT_EQ(row.draws[0].error, kernels::DrawError::kNothingAllowed);
}

TEST(SimulatedModel, AnswersEndAfterTheMeanLength) {
  const auto model = Make(/*mean_output=*/10);
  OneRow row;
  int ends = 0;
  for (int i = 0; i < 2000; ++i) {
    row.draws[0].settings.uniform = i / 2000.0;
    ends += row.Draw(*model) == kEnd ? 1 : 0;
  }
  EXPECT_NEAR(ends, 200, 50);
}

TEST(SimulatedModel, AStepTakesTheTimeOfTheClock) {
  OneRow row;
  const auto model = Make(0, /*sleeps=*/true);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) row.Draw(*model);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_NEAR(model->simulated_seconds(), 0.05, 1e-9);
  EXPECT_GE(seconds, 0.049);
}

TEST(SimulatedModel, LogitsForTheSamplerFavourOneToken) {
  const auto model = Make();
  OneRow row;
  row.draws.clear();
  std::vector<float> logits(kVocab);
  ThreadPool pool(1);
  KvCache cache = *KvCache::Allocate(kernels::KvLayout{.num_kv_heads = 1, .head_dim = 32}, 1, 1);
  StepInput input;
  input.tokens = row.tokens;
  input.positions = row.positions;
  input.slices = row.slices;
  input.logit_rows = row.rows;
  model->Forward(pool, input, cache, logits.data());
  const auto best = std::ranges::max_element(logits);
  EXPECT_NE(best - logits.begin(), kEnd);
  EXPECT_EQ(std::ranges::count_if(logits, [&](float x) { return x > *best - 10; }), 1);
}

}  // namespace
}  // namespace sluice
