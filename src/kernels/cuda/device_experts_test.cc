// router, group_by_expert, gather_rows and combine_experts.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cuda/device_kernel_testing.h"
#include "kernels/experts.h"

namespace sluice::emulated {
namespace {

struct Routed {
  std::vector<float> logits, weights;
  std::vector<int32_t> chosen;
};

struct RouterCase {
  int64_t rows, k, num_experts;
  int top_k;
  bool sigmoid, normalize;
};

Routed Route(const RouterCase& shape, const float* x, const std::vector<BFloat16>& weight,
             emulator::Order order) {
  Routed out{.logits = std::vector<float>(shape.rows * shape.num_experts, -1),
             .weights = std::vector<float>(shape.rows * shape.top_k, -1),
             .chosen = std::vector<int32_t>(shape.rows * shape.top_k, -1)};
  RunEmulated(order, [&](const StreamHandle& stream) {
    LaunchRouter(stream, {.x = x,
                          .weight = reinterpret_cast<const uint16_t*>(weight.data()),
                          .rows = shape.rows,
                          .k = shape.k,
                          .num_experts = shape.num_experts,
                          .top_k = shape.top_k,
                          .sigmoid = shape.sigmoid,
                          .normalize = shape.normalize,
                          .logits = out.logits.data(),
                          .chosen = out.chosen.data(),
                          .expert_weights = out.weights.data()});
  });
  return out;
}

TEST(DeviceRouter, AgreesWithTheCpu) {
  kernels::Random random(1);
  ThreadPool pool(1);
  for (const RouterCase& shape :
       {RouterCase{1, 64, 4, 2, false, false}, RouterCase{9, 100, 16, 1, true, false},
        RouterCase{17, 256, 128, 8, false, true}, RouterCase{3, 2048, 37, 37, false, true},
        RouterCase{5, 33, 9, 3, true, true}}) {
    const std::vector<float> x = random.Normal(shape.rows * shape.k);
    std::vector<BFloat16> weight = kernels::ToBFloat16(random.Normal(shape.num_experts * shape.k));
    // Two experts with equal logits: the lower one first.
    std::copy_n(weight.begin(), shape.k, weight.begin() + 2 * shape.k);
    const Routed out = Route(shape, x.data(), weight, emulator::Order::kForward);
    const Routed reverse = Route(shape, x.data(), weight, emulator::Order::kReverse);
    EXPECT_TRUE(HaveSameBits(out.logits, reverse.logits));
    EXPECT_TRUE(HaveSameBits(out.weights, reverse.weights));
    EXPECT_TRUE(HaveSameBits(out.chosen, reverse.chosen));
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t expert = 0; expert < shape.num_experts; ++expert) {
        double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < shape.k; ++i) {
          const double product =
              double{x[row * shape.k + i]} * ToFloat(weight[expert * shape.k + i]);
          sum += product;
          magnitude += std::abs(product);
        }
        // A lane adds k / 32 products one by one, then 5 levels of lanes.
        const double depth = static_cast<double>(shape.k) / 32 + 8 + 5;
        ASSERT_NEAR(out.logits[row * shape.num_experts + expert], sum, magnitude * depth * 0x1p-24);
      }
      RouterCase one = shape;
      one.rows = 1;
      const Routed alone = Route(one, x.data() + row * shape.k, weight, emulator::Order::kForward);
      for (int slot = 0; slot < shape.top_k; ++slot) {
        EXPECT_EQ(alone.chosen[slot], out.chosen[row * shape.top_k + slot]);
        EXPECT_EQ(alone.weights[slot], out.weights[row * shape.top_k + slot]);
      }
    }
    std::vector<int32_t> chosen(out.chosen.size());
    std::vector<float> weights(out.weights.size());
    kernels::SelectExperts(
        pool, out.logits.data(), shape.rows, shape.num_experts, shape.top_k,
        shape.sigmoid ? kernels::RouterScore::kSigmoid : kernels::RouterScore::kSoftmax,
        shape.normalize, chosen.data(), weights.data());
    EXPECT_EQ(out.chosen, chosen);
    // The sum over all experts is taken in another order, of up to num_experts steps.
    const float error = static_cast<float>(shape.num_experts + 4) * 0x1p-24f;
    for (size_t i = 0; i < weights.size(); ++i)
      ASSERT_NEAR(out.weights[i], weights[i], weights[i] * error);
  }
}

TEST(DeviceRouter, ChoosesDifferentExpertsWhateverTheLogits) {
  const RouterCase shape{
      .rows = 1, .k = 8, .num_experts = 6, .top_k = 4, .sigmoid = true, .normalize = false};
  std::vector<BFloat16> weight = kernels::ToBFloat16(std::vector<float>(6 * 8, 0.0f));
  const std::vector<float> x(8, 1.0f);
  EXPECT_EQ(Route(shape, x.data(), weight, emulator::Order::kForward).chosen,
            (std::vector<int32_t>{0, 1, 2, 3}));
  weight[8] = sluice::ToBFloat16(std::numeric_limits<float>::quiet_NaN());  // of expert 1
  weight[5 * 8] = sluice::ToBFloat16(2);
  EXPECT_EQ(Route(shape, x.data(), weight, emulator::Order::kForward).chosen,
            (std::vector<int32_t>{5, 0, 2, 3}));
}

// order, place and row_begin, one behind the other.
std::vector<int32_t> Group(const std::vector<int32_t>& chosen, int64_t rows, int top_k,
                           int64_t num_experts) {
  const int64_t pairs = rows * top_k;
  return ResultOfBothOrders<int32_t>(2 * pairs + num_experts + 1, -1,
                                     [&](const StreamHandle& stream, int32_t* out) {
                                       LaunchGroupByExpert(stream, {.chosen = chosen.data(),
                                                                    .rows = rows,
                                                                    .top_k = top_k,
                                                                    .num_experts = num_experts,
                                                                    .order = out,
                                                                    .place = out + pairs,
                                                                    .row_begin = out + 2 * pairs});
                                     });
}

TEST(DeviceGroupByExpert, IsThatOfTheCpu) {
  kernels::Random random(2);
  struct Shape {
    int64_t rows;
    int top_k;
    int64_t num_experts;
  };
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{1, 2, 4}, Shape{5, 8, 128}, Shape{300, 1, 16},
                             Shape{33, 3, 37}, Shape{4000, 8, 128}}) {
    const int64_t pairs = shape.rows * shape.top_k;
    std::vector<int32_t> chosen(pairs);
    // The upper half of the experts gets nothing in some cases.
    const int64_t used = shape.rows % 2 == 0 ? shape.num_experts : (shape.num_experts + 1) / 2;
    for (int32_t& expert : chosen) expert = static_cast<int32_t>(random.Integer(0, used - 1));
    std::vector<int32_t> expected(2 * pairs + shape.num_experts + 1);
    kernels::GroupByExpert(chosen.data(), shape.rows, shape.top_k, shape.num_experts,
                           expected.data(), expected.data() + pairs, expected.data() + 2 * pairs);
    EXPECT_EQ(Group(chosen, shape.rows, shape.top_k, shape.num_experts), expected)
        << shape.rows << " x " << shape.top_k << " of " << shape.num_experts;
  }
}

TEST(DeviceExperts, GatheredRowsComeBackCombined) {
  kernels::Random random(3);
  ThreadPool pool(1);
  for (const int64_t cols : {20, 64, 96, 2056}) {
    const int64_t rows = 5, num_experts = 4, pairs = 10;
    const int top_k = 2;
    std::vector<int32_t> chosen(pairs);
    for (int32_t& expert : chosen) expert = static_cast<int32_t>(random.Integer(0, 3));
    std::vector<int32_t> order(pairs), place(pairs), row_begin(num_experts + 1);
    kernels::GroupByExpert(chosen.data(), rows, top_k, num_experts, order.data(), place.data(),
                           row_begin.data());
    const std::vector<float> x = random.Normal(rows * cols), weights = random.Normal(pairs);
    const kernels::Activations activations{
        .data = x.data(), .type = ElementType::kF32, .rows = rows, .cols = cols, .stride = cols};
    for (const float* scaling : {static_cast<const float*>(nullptr), weights.data()}) {
      const std::vector<float> gathered =
          ExpectRoundedRows(pairs, cols,
                            [&](const StreamHandle& stream, int64_t first, int64_t count,
                                const device::RowsOut& out) {
                              LaunchGatherRows(stream, {.x = x.data(),
                                                        .order = order.data() + first,
                                                        .pairs = count,
                                                        .cols = cols,
                                                        .top_k = top_k,
                                                        .weights = scaling,
                                                        .out = out});
                            });
      std::vector<float> expected(gathered.size());
      kernels::GatherRows(pool, activations, order, top_k, scaling, expected.data());
      EXPECT_EQ(gathered, expected);

      const std::vector<float> y = kernels::Rounded(random.Normal(pairs * cols));
      const std::vector<BFloat16> y_bf16 = kernels::ToBFloat16(y);
      for (const bool is_bf16 : {false, true}) {
        for (const bool add : {false, true}) {
          const auto combine = [&](int64_t first, int64_t count) {
            return ResultOfBothOrders<float>(
                count * cols, 2.5f, [&](const StreamHandle& stream, float* sum) {
                  LaunchCombineExperts(
                      stream, {.y = is_bf16 ? static_cast<const void*>(y_bf16.data()) : y.data(),
                               .y_type = is_bf16 ? ElementType::kBF16 : ElementType::kF32,
                               .place = place.data() + first * top_k,
                               .weights = scaling == nullptr ? nullptr : scaling + first * top_k,
                               .rows = count,
                               .cols = cols,
                               .top_k = top_k,
                               .add = add,
                               .sum = sum});
                });
          };
          std::vector<float> sum(static_cast<size_t>(rows * cols), 2.5f);
          kernels::CombineExperts(pool, y.data(), place.data(), scaling, rows, top_k, cols, add,
                                  sum.data());
          EXPECT_EQ(combine(0, rows), sum);
          EXPECT_EQ(combine(3, 1),
                    std::vector<float>(sum.begin() + 3 * cols, sum.begin() + 4 * cols));
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::emulated
