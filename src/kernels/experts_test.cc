#include "kernels/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/kernel_testing.h"

namespace sluice::kernels {
namespace {

struct Selection {
  std::vector<int32_t> chosen;
  std::vector<float> weights;
};

Selection Select(const std::vector<float>& logits, int64_t num_experts, int64_t top_k,
                 RouterScore score, bool normalize, int num_threads = 2) {
  ThreadPool pool(num_threads);
  const auto rows = static_cast<int64_t>(logits.size()) / num_experts;
  Selection result;
  result.chosen.resize(static_cast<size_t>(rows * top_k));
  result.weights.resize(result.chosen.size());
  SelectExperts(pool, logits.data(), rows, num_experts, top_k,
                {.score = score, .normalize = normalize}, result.chosen.data(),
                result.weights.data());
  return result;
}

TEST(SelectExpertsTest, AgreesWithASort) {
  Random random(1);
  const int64_t rows = 33, num_experts = 24;
  std::vector<float> logits = random.Normal(rows * num_experts, 2.0f);
  for (size_t i = 0; i < logits.size(); i += 5) logits[i] = std::round(logits[i]);  // ties
  for (const int64_t top_k : {1, 4, 24}) {
    for (const bool normalize : {false, true}) {
      const Selection got = Select(logits, num_experts, top_k, RouterScore::kSoftmax, normalize);
      EXPECT_EQ(Select(logits, num_experts, top_k, RouterScore::kSoftmax, normalize, 1).weights,
                got.weights);
      for (int64_t row = 0; row < rows; ++row) {
        const float* mine = logits.data() + row * num_experts;
        std::vector<int32_t> order(static_cast<size_t>(num_experts));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int32_t a, int32_t b) { return mine[a] > mine[b]; });
        double sum = 0, chosen_sum = 0;
        for (int64_t e = 0; e < num_experts; ++e) sum += std::exp(double{mine[e]});
        for (int64_t i = 0; i < top_k; ++i)
          chosen_sum += std::exp(double{mine[order[static_cast<size_t>(i)]]});
        for (int64_t i = 0; i < top_k; ++i) {
          const auto at = static_cast<size_t>(row * top_k + i);
          const int32_t expert = order[static_cast<size_t>(i)];
          ASSERT_EQ(got.chosen[at], expert);
          ASSERT_NEAR(got.weights[at],
                      std::exp(double{mine[expert]}) / (normalize ? chosen_sum : sum), 1e-6);
        }
      }
    }
  }
}

TEST(SelectExpertsTest, TheSigmoidSeesTheLogitAlone) {
  const Selection got = Select({0.5f, 3.0f, -1.0f, 2.0f}, 4, 2, RouterScore::kSigmoid, false);
  EXPECT_EQ(got.chosen, (std::vector<int32_t>{1, 3}));
  EXPECT_NEAR(got.weights[0], 1 / (1 + std::exp(-3.0)), 1e-6);
  EXPECT_NEAR(got.weights[1], 1 / (1 + std::exp(-2.0)), 1e-6);
}

// The bias changes the choice but not the weights.
TEST(SelectExpertsTest, ABiasChoosesAndAScaleWeighs) {
  ThreadPool pool(1);
  const std::vector<float> logits = {0.5f, 3.0f, -1.0f, 2.0f};
  const std::vector<float> bias = {0, -1, 0.9f, 0};
  std::vector<int32_t> chosen(2);
  std::vector<float> weights(2);
  RouterRule rule = {
      .score = RouterScore::kSigmoid, .choice_bias = bias.data(), .normalize = true, .scale = 2.5f};
  SelectExperts(pool, logits.data(), 1, 4, 2, rule, chosen.data(), weights.data());
  EXPECT_EQ(chosen, (std::vector<int32_t>{2, 3}));
  const double a = 1 / (1 + std::exp(1.0)), b = 1 / (1 + std::exp(-2.0));
  EXPECT_NEAR(weights[0], 2.5 * a / (a + b), 1e-6);
  EXPECT_NEAR(weights[1], 2.5 * b / (a + b), 1e-6);
  rule = {.score = RouterScore::kSoftmax, .choice_bias = bias.data()};
  SelectExperts(pool, logits.data(), 1, 4, 2, rule, chosen.data(), weights.data());
  EXPECT_EQ(chosen, (std::vector<int32_t>{2, 3}));
  const double sum = std::exp(0.5) + std::exp(3.0) + std::exp(-1.0) + std::exp(2.0);
  EXPECT_NEAR(weights[0], std::exp(-1.0) / sum, 1e-6);
  EXPECT_NEAR(weights[1], std::exp(2.0) / sum, 1e-6);
}

// Logits plus bias choose experts 0 and 1, whose weights are the sigmoids of their logits. Sigmoids
// plus bias would choose expert 2, which has the largest bias.
TEST(SelectExpertsTest, ABiasOfLogitsChooses) {
  ThreadPool pool(1);
  const std::vector<float> logits = {0.5f, 3.0f, -4.0f, 2.0f};
  const std::vector<float> bias = {2, -1, 3, 0};
  std::vector<int32_t> chosen(2);
  std::vector<float> weights(2);
  const RouterRule rule = {
      .score = RouterScore::kSigmoid, .choice_bias = bias.data(), .chooses_by_logits = true};
  SelectExperts(pool, logits.data(), 1, 4, 2, rule, chosen.data(), weights.data());
  EXPECT_EQ(chosen, (std::vector<int32_t>{0, 1}));
  EXPECT_NEAR(weights[0], 1 / (1 + std::exp(-0.5)), 1e-6);
  EXPECT_NEAR(weights[1], 1 / (1 + std::exp(-3.0)), 1e-6);
}

TEST(SelectExpertsTest, ASoftCapBoundsWhatIsWeighed) {
  ThreadPool pool(1);
  const std::vector<float> logits = {0.5f, 3.0f, -4.0f, 2.0f};
  std::vector<int32_t> chosen(2);
  std::vector<float> weights(2);
  const RouterRule rule = {.score = RouterScore::kSigmoid, .soft_cap = 1.5f};
  SelectExperts(pool, logits.data(), 1, 4, 2, rule, chosen.data(), weights.data());
  EXPECT_EQ(chosen, (std::vector<int32_t>{1, 3}));
  EXPECT_NEAR(weights[0], 1 / (1 + std::exp(-1.5 * std::tanh(2.0))), 1e-6);
  EXPECT_NEAR(weights[1], 1 / (1 + std::exp(-1.5 * std::tanh(2.0 / 1.5))), 1e-6);
}

// Tests the score sqrt(softplus): experts are chosen by the score, by the score plus a bias, or
// given.
TEST(SelectExpertsTest, SquareRootsOfSoftplusWeigh) {
  ThreadPool pool(1);
  const std::vector<float> logits = {0.5f, 3.0f, -1.0f, 25.0f};
  const std::vector<float> bias = {9, 0, 0, 0};
  const auto score = [](double x) { return std::sqrt(std::log1p(std::exp(x))); };
  std::vector<int32_t> chosen(2);
  std::vector<float> weights(2);
  const auto expect = [&](int32_t first, int32_t second) {
    EXPECT_EQ(chosen, (std::vector<int32_t>{first, second}));
    const double a = score(logits[static_cast<size_t>(first)]);
    const double b = score(logits[static_cast<size_t>(second)]);
    EXPECT_NEAR(weights[0], 1.5 * a / (a + b), 1e-6);
    EXPECT_NEAR(weights[1], 1.5 * b / (a + b), 1e-6);
  };
  RouterRule rule = {.score = RouterScore::kSqrtSoftplus, .normalize = true, .scale = 1.5f};
  SelectExperts(pool, logits.data(), 1, 4, 2, rule, chosen.data(), weights.data());
  expect(3, 1);
  rule.choice_bias = bias.data();
  SelectExperts(pool, logits.data(), 1, 4, 2, rule, chosen.data(), weights.data());
  expect(0, 3);
  chosen = {2, 1};
  WeighExperts(pool, logits.data(), 1, 4, 2, rule, chosen.data(), weights.data());
  expect(2, 1);
}

// With jitter 0.01, logits are near if they differ by at most 2 %: 0.99 is near 1, but 0.97 is not
// near 0.99.
TEST(SelectExpertsTest, TheSparseMixerWeighsAmongWhatIsNear) {
  ThreadPool pool(1);
  const std::vector<float> logits = {0.97f, 1.0f, 0.2f, 0.99f, -3.0f, -3.01f, -2.99f, -9.0f};
  std::vector<int32_t> chosen(4);
  std::vector<float> weights(4);
  const RouterRule rule = {.score = RouterScore::kSparseMixer, .jitter = 0.01f};
  SelectExperts(pool, logits.data(), 2, 4, 2, rule, chosen.data(), weights.data());
  EXPECT_EQ(chosen, (std::vector<int32_t>{1, 3, 2, 0}));
  EXPECT_NEAR(weights[0], 1 / (1 + std::exp(-0.01)), 1e-6);
  EXPECT_EQ(weights[1], 1);
  EXPECT_NEAR(weights[2], 1 / (1 + std::exp(-0.01) + std::exp(-0.02)), 1e-6);
  EXPECT_NEAR(weights[3], 1 / (1 + std::exp(-0.01)), 1e-6);
}

// Keeps two of four groups of three experts: those whose best two scores have the largest sums. The
// group with the largest single score may be excluded.
TEST(SelectExpertsTest, ChoosesWithinTheBestGroups) {
  Random random(4);
  ThreadPool pool(2);
  const int64_t rows = 40, experts = 12, top_k = 4, size = 3;
  const std::vector<float> logits = random.Normal(rows * experts, 2.0f);
  std::vector<float> bias = random.Normal(experts);
  bias[4] = bias[3];
  RouterRule rule = {.score = RouterScore::kSigmoid,
                     .choice_bias = bias.data(),
                     .num_groups = 4,
                     .kept_groups = 2,
                     .normalize = true};
  std::vector<int32_t> chosen(rows * top_k), all(rows * top_k);
  std::vector<float> weights(rows * top_k);
  SelectExperts(pool, logits.data(), rows, experts, top_k, rule, chosen.data(), weights.data());
  int differ = 0;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<float> scores;
    for (int64_t e = 0; e < experts; ++e) {
      scores.push_back(1 / (1 + std::exp(-logits[static_cast<size_t>(row * experts + e)])) +
                       bias[static_cast<size_t>(e)]);
    }
    std::vector<std::pair<float, int64_t>> groups;
    for (int64_t g = 0; g < 4; ++g) {
      std::vector<float> of_group(scores.begin() + g * size, scores.begin() + (g + 1) * size);
      std::sort(of_group.rbegin(), of_group.rend());
      groups.emplace_back(-(of_group[0] + of_group[1]), g);
    }
    std::sort(groups.begin(), groups.end());
    std::vector<std::pair<float, int32_t>> order;
    for (int64_t e = 0; e < experts; ++e) {
      if (e / size == groups[0].second || e / size == groups[1].second)
        order.emplace_back(-scores[static_cast<size_t>(e)], static_cast<int32_t>(e));
    }
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < top_k; ++i)
      ASSERT_EQ(chosen[static_cast<size_t>(row * top_k + i)], order[static_cast<size_t>(i)].second);
  }
  rule.num_groups = rule.kept_groups = 1;
  SelectExperts(pool, logits.data(), rows, experts, top_k, rule, all.data(), weights.data());
  for (size_t i = 0; i < all.size(); ++i) differ += all[i] != chosen[i] ? 1 : 0;
  EXPECT_GT(differ, 0) << "groups make a difference";
}

// Ranks groups by their best expert, or by their two best experts, without a bias.
TEST(SelectExpertsTest, GroupsCountByOneOrTwo) {
  ThreadPool pool(1);
  const std::vector<float> logits = {2.2f, -9, 2, 2};
  std::vector<int32_t> chosen(2);
  std::vector<float> weights(2);
  RouterRule rule = {.num_groups = 2, .kept_groups = 1, .group_best = 1};
  SelectExperts(pool, logits.data(), 1, 4, 2, rule, chosen.data(), weights.data());
  EXPECT_EQ(chosen, (std::vector<int32_t>{0, 1}));
  const double sum = std::exp(2.2) + std::exp(-9.0) + 2 * std::exp(2.0);
  EXPECT_NEAR(weights[0], std::exp(2.2) / sum, 1e-6);
  EXPECT_NEAR(weights[1], std::exp(-9.0) / sum, 1e-6);
  rule.group_best = 2;
  SelectExperts(pool, logits.data(), 1, 4, 2, rule, chosen.data(), weights.data());
  EXPECT_EQ(chosen, (std::vector<int32_t>{2, 3}));
}

TEST(GateRowsTest, MultipliesRowsByTheSigmoid) {
  Random random(9);
  ThreadPool pool(2);
  const std::vector<float> x = random.Normal(3 * 2000), logits = {0, 2, -30};
  std::vector<float> y = x;
  GateRows(pool, logits.data(), 3, 2000, y.data());
  for (size_t i = 0; i < y.size(); ++i) {
    const double gate = 1 / (1 + std::exp(-static_cast<double>(logits[i / 2000])));
    ASSERT_NEAR(y[i], x[i] * gate, std::abs(x[i]) * gate * 1e-6);
  }
}

TEST(SelectExpertsTest, LargeLogitsDoNotOverflow) {
  const Selection got = Select({1000.0f, 999.0f, -1000.0f}, 3, 2, RouterScore::kSoftmax, true);
  EXPECT_NEAR(got.weights[0], 1 / (1 + std::exp(-1.0)), 1e-6);
}

TEST(SelectExpertsTest, NotANumberComesLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Select({nan, 1.0f, nan, 2.0f}, 4, 3, RouterScore::kSigmoid, false).chosen,
            (std::vector<int32_t>{3, 1, 0}));
  EXPECT_EQ(Select({nan, nan, nan}, 3, 2, RouterScore::kSigmoid, false).chosen,
            (std::vector<int32_t>{0, 1}));
}

TEST(GroupByExpertTest, SortsPairsAndKeepsRowsInOrder) {
  const int64_t rows = 50, top_k = 3, num_experts = 7;
  Random random(2);
  std::vector<int32_t> chosen;
  for (int64_t i = 0; i < rows * top_k; ++i)  // expert 4 gets no rows
    chosen.push_back(static_cast<int32_t>(random.Integer(0, 1) * 5 + random.Integer(0, 1)));
  std::vector<int32_t> order(chosen.size()), place(chosen.size()), row_begin(8);
  GroupByExpert(chosen.data(), rows, top_k, num_experts, order.data(), place.data(),
                row_begin.data());
  EXPECT_EQ(row_begin.front(), 0);
  EXPECT_EQ(row_begin.back(), rows * top_k);
  EXPECT_EQ(row_begin[4], row_begin[5]);
  for (size_t expert = 0; expert < 7; ++expert) {
    for (int32_t at = row_begin[expert]; at < row_begin[expert + 1]; ++at) {
      const auto pair = static_cast<size_t>(order[static_cast<size_t>(at)]);
      EXPECT_EQ(chosen[pair], static_cast<int32_t>(expert));
      EXPECT_EQ(place[pair], at);
      if (at > row_begin[expert]) {
        EXPECT_GT(pair, order[static_cast<size_t>(at) - 1]);
      }
    }
  }
}

TEST(GatherRowsTest, TakesTheRowOfThePairAndScalesIt) {
  ThreadPool pool(2);
  // Three rows of two numbers, with a stride of three.
  const std::vector<float> x = {1, 2, 0, 3, 4, 0, 5, 6, 0};
  const Activations view{
      .data = x.data(), .type = ElementType::kF32, .rows = 3, .cols = 2, .stride = 3};
  const std::vector<int32_t> order = {5, 0, 2, 3, 1, 4};
  const std::vector<float> weights = {1, 10, 100, 1000, 0.5f, 0.25f};
  std::vector<float> out(12);
  GatherRows(pool, view, order, 2, nullptr, out.data());
  EXPECT_EQ(out, (std::vector<float>{5, 6, 1, 2, 3, 4, 3, 4, 1, 2, 5, 6}));
  GatherRows(pool, view, order, 2, weights.data(), out.data());
  EXPECT_EQ(out, (std::vector<float>{1.25f, 1.5f, 1, 2, 300, 400, 3000, 4000, 10, 20, 2.5f, 3}));
  const std::vector<BFloat16> narrow = ToBFloat16(x);
  Activations bf16 = view;
  bf16.data = narrow.data();
  bf16.type = ElementType::kBF16;
  std::vector<BFloat16> narrow_out(12);
  GatherRows(pool, bf16, order, 2, weights.data(), narrow_out.data());
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(ToFloat(narrow_out[i]), Rounded(out)[i]);
}

TEST(CombineExpertsTest, AddsTheSlotsInTheirOrder) {
  Random random(3);
  const int64_t rows = 9, top_k = 3, cols = 1500;
  const std::vector<float> y = random.Normal(rows * top_k * cols);
  const std::vector<float> weights = random.Normal(rows * top_k);
  std::vector<int32_t> place(static_cast<size_t>(rows * top_k));
  std::iota(place.begin(), place.end(), 0);
  std::shuffle(place.begin(), place.end(), random.engine());
  for (const bool scaled : {false, true}) {
    for (const bool add : {false, true}) {
      std::vector<float> expected = random.Normal(rows * cols), sum = expected, alone = expected;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t k = 0; k < cols; ++k) {
          float value = add ? expected[static_cast<size_t>(row * cols + k)] : 0.0f;
          for (int64_t slot = 0; slot < top_k; ++slot) {
            const auto pair = static_cast<size_t>(row * top_k + slot);
            const float from = y[static_cast<size_t>(place[pair] * cols + k)];
            const float term = (scaled ? weights[pair] : 1.0f) * from;
            value = slot == 0 && !add ? term : value + term;
          }
          expected[static_cast<size_t>(row * cols + k)] = value;
        }
      }
      ThreadPool pool(3), one(1);
      const float* scale = scaled ? weights.data() : nullptr;
      CombineExperts(pool, y.data(), place.data(), scale, rows, top_k, cols, add, sum.data());
      EXPECT_EQ(sum, expected);
      for (int64_t row = 0; row < rows; ++row) {
        CombineExperts(one, y.data(), place.data() + row * top_k,
                       scaled ? weights.data() + row * top_k : nullptr, 1, top_k, cols, add,
                       alone.data() + row * cols);
      }
      EXPECT_EQ(alone, expected);
    }
  }
}

}  // namespace
}  // namespace sluice::kernels
