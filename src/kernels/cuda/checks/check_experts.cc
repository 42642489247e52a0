// Checks routing of rows to experts, gathering and combining, against the CPU's operators.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/rows_out.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/tolerances.h"
#include "kernels/experts.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;
using device::RowsOut;

struct RouterShape {
  const char* name;
  int64_t rows, k, experts;
  int top_k;
  bool sigmoid, normalize;
  bool has_factors = false, has_bias = false, has_choice_bias = false;
  float scale = 1;
  int num_groups = 1, kept_groups = 1, group_best = 2;
  bool chooses_by_logits = false;
};

// A vector per expert on the device, or null.
struct RouterVectors {
  const float *factors = nullptr, *bias = nullptr, *choice_bias = nullptr;
};

struct Routing {
  std::vector<float> logits, weights;
  std::vector<int32_t> chosen;
};

// Routes rows [first, first + rows) of `x`.
Routing Route(CaseMemory& memory, const RouterShape& shape, const float* x, const uint16_t* weight,
              int64_t first, int64_t rows, const RouterVectors& vectors = {}) {
  const int64_t pairs = rows * shape.top_k;
  device::RouterArgs args{};
  args.x = x == nullptr ? nullptr : x + first * shape.k;
  args.weight = weight;
  args.rows = rows;
  args.k = shape.k;
  args.num_experts = shape.experts;
  args.top_k = shape.top_k;
  args.sigmoid = shape.sigmoid;
  args.normalize = shape.normalize;
  args.expert_factors = vectors.factors;
  args.bias = vectors.bias;
  args.choice_bias = vectors.choice_bias;
  args.scale = shape.scale;
  args.num_groups = shape.num_groups;
  args.kept_groups = shape.kept_groups;
  args.group_best = shape.group_best;
  args.chooses_by_logits = shape.chooses_by_logits;
  args.logits = memory.Out<float>(rows * shape.experts);
  args.chosen = memory.Out<int32_t>(pairs);
  args.expert_weights = memory.Out<float>(pairs);
  memory.Launch(&DeviceKernels::router, args);
  return {memory.Read<float>(args.logits, rows * shape.experts),
          memory.Read<float>(args.expert_weights, pairs), memory.Read<int32_t>(args.chosen, pairs)};
}

// With integers, the logits are exact and many are equal, so there is one correct choice.
// Otherwise, the expected choice is the CPU's choice from the device's logits. Experts 0 and 2 have
// equal weights.
void CheckRouter(CaseMemory& memory, Comparison& comparison, const RouterShape& shape,
                 bool is_exact) {
  TestNumbers numbers(71);
  const int64_t x_count = shape.rows * shape.k, weight_count = shape.experts * shape.k;
  std::vector<float> x = is_exact ? numbers.Integers(x_count, 2) : numbers.Normals(x_count);
  std::vector<float> weight =
      is_exact ? numbers.Integers(weight_count, 1) : numbers.Normals(weight_count);
  // The numbers are so small that exp of the logits does not overflow.
  for (float& value : x) value *= 0.0625f;
  std::copy_n(weight.begin(), shape.k, weight.begin() + 2 * shape.k);
  for (float& value : weight) value = FromBf16Bits(ToBFloat16(value).bits);
  const float* device_x = memory.In(x);
  const uint16_t* device_weight = memory.In(ToBf16Bits(weight));
  const std::vector<float> factors = numbers.Normals(shape.experts);
  std::vector<float> bias = numbers.Integers(shape.experts, 4);
  for (float& value : bias) value *= is_exact ? 0.0625f : 0.1f;
  bias[2] = bias[0];
  // Biases have a similar size to the scores.
  std::vector<float> choice_bias = numbers.Normals(shape.experts);
  for (float& value : choice_bias) value *= 0.25f;
  choice_bias[2] = choice_bias[0];
  const RouterVectors vectors = {
      .factors = shape.has_factors ? memory.In(factors) : nullptr,
      .bias = shape.has_bias ? memory.In(bias) : nullptr,
      .choice_bias = shape.has_choice_bias ? memory.In(choice_bias) : nullptr};
  const Routing got = Route(memory, shape, device_x, device_weight, 0, shape.rows, vectors);

  std::vector<float> logits = got.logits;
  comparison.SetSubject("logits");
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t expert = 0; expert < shape.experts; ++expert) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < shape.k; ++i) {
        const double product = static_cast<double>(x[static_cast<size_t>(row * shape.k + i)]) *
                               weight[static_cast<size_t>(expert * shape.k + i)];
        sum += product;
        size += std::abs(product);
      }
      if (shape.has_bias) {
        sum += bias[static_cast<size_t>(expert)];
        size += std::abs(bias[static_cast<size_t>(expert)]);
      }
      const auto at = static_cast<size_t>(row * shape.experts + expert);
      if (is_exact) logits[at] = static_cast<float>(sum);
      // The error bound includes the roundings of these additions: a lane adds 1/32 of the products
      // one by one, and at most 8 more; then 5 levels of lanes, and the bias.
      const double depth = static_cast<double>(shape.k) / 32 + 8 + 5 + 1;
      comparison.AddF32(got.logits[at], sum, is_exact ? 0 : size * Gamma(depth));
    }
  }
  ThreadPool pool(1);
  std::vector<int32_t> chosen(got.chosen.size());
  std::vector<float> weights(got.weights.size());
  kernels::SelectExperts(
      pool, logits.data(), shape.rows, shape.experts, shape.top_k,
      {.score = shape.sigmoid ? kernels::RouterScore::kSigmoid : kernels::RouterScore::kSoftmax,
       .choice_bias = shape.has_choice_bias ? choice_bias.data() : nullptr,
       .num_groups = shape.num_groups,
       .kept_groups = shape.kept_groups,
       .group_best = shape.group_best,
       .normalize = shape.normalize,
       .scale = shape.scale,
       .chooses_by_logits = shape.chooses_by_logits},
      chosen.data(), weights.data());
  if (shape.has_factors) {
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] *= factors[static_cast<size_t>(chosen[i])];
  }
  comparison.SetSubject("choice");
  // The error bound includes these roundings on the device and on the CPU: exp, the sum of all, the
  // division, the sum of the chosen, another division, the scale.
  const double roundings =
      2 * (2 * kMathUnits + static_cast<double>(shape.experts) + shape.top_k + 6);
  for (size_t i = 0; i < chosen.size(); ++i) {
    comparison.AddEqual(got.chosen[i], chosen[i]);
    comparison.AddF32(got.weights[i], weights[i], std::abs(weights[i]) * Gamma(roundings));
  }
  comparison.SetSubject("a row alone");
  for (int64_t row = 0; row < std::min<int64_t>(shape.rows, 20); ++row) {
    const Routing alone = Route(memory, shape, device_x, device_weight, row, 1, vectors);
    for (int slot = 0; slot < shape.top_k; ++slot) {
      const auto at = static_cast<size_t>(row * shape.top_k + slot);
      comparison.AddEqual(alone.chosen[static_cast<size_t>(slot)], got.chosen[at]);
      comparison.AddF32(alone.weights[static_cast<size_t>(slot)], got.weights[at], 0);
    }
  }
}

// Checks that a row's experts are distinct for any logits. Among equal logits, the first are
// chosen; NaN is chosen last.
void CheckRouterOfOddLogits(CaseMemory& memory, Comparison& comparison) {
  const RouterShape shape{"", 1, 8, 6, 4, true, false};
  const float* x = memory.In(std::vector<float>(8, 1.0f));
  const auto choose = [&](const std::vector<float>& weight, const std::vector<int32_t>& expected) {
    const Routing got = Route(memory, shape, x, memory.In(ToBf16Bits(weight)), 0, 1);
    for (size_t i = 0; i < expected.size(); ++i) comparison.AddEqual(got.chosen[i], expected[i]);
  };
  std::vector<float> weight(6 * 8, 0.0f);
  choose(weight, {0, 1, 2, 3});
  weight[8] = std::numeric_limits<float>::quiet_NaN();  // expert 1
  weight[5 * 8] = 2;
  choose(weight, {5, 0, 2, 3});
}

struct GroupingShape {
  int64_t rows;
  int top_k;
  int64_t experts;
};

struct Grouping {
  std::vector<int32_t> chosen, order, place, row_begin;
};
// If the number of rows is odd, the upper half of the experts gets no rows.
Grouping MakeGrouping(const GroupingShape& shape) {
  TestNumbers numbers(72);
  Grouping grouping;
  const auto pairs = static_cast<size_t>(shape.rows * shape.top_k);
  const int64_t used = shape.rows % 2 == 0 ? shape.experts : (shape.experts + 1) / 2;
  for (size_t pair = 0; pair < pairs; ++pair)
    grouping.chosen.push_back(static_cast<int32_t>(numbers.Integer(0, used - 1)));
  grouping.order.resize(pairs);
  grouping.place.resize(pairs);
  grouping.row_begin.resize(static_cast<size_t>(shape.experts) + 1);
  kernels::GroupByExpert(grouping.chosen.data(), shape.rows, shape.top_k, shape.experts,
                         grouping.order.data(), grouping.place.data(), grouping.row_begin.data());
  return grouping;
}

void CheckGroupByExpert(CaseMemory& memory, Comparison& comparison, const GroupingShape& shape) {
  const Grouping grouping = MakeGrouping(shape);
  const int64_t pairs = shape.rows * shape.top_k;
  device::GroupByExpertArgs args{};
  args.chosen = memory.In(grouping.chosen);
  args.rows = shape.rows;
  args.top_k = shape.top_k;
  args.num_experts = shape.experts;
  args.order = memory.Out<int32_t>(pairs);
  args.place = memory.Out<int32_t>(pairs);
  args.row_begin = memory.Out<int32_t>(shape.experts + 1);
  memory.Launch(&DeviceKernels::group_by_expert, args);
  const auto compare = [&](const int32_t* from, const std::vector<int32_t>& expected) {
    const auto got = memory.Read<int32_t>(from, static_cast<int64_t>(expected.size()));
    for (size_t i = 0; i < got.size(); ++i) comparison.AddEqual(got[i], expected[i]);
  };
  compare(args.order, grouping.order);
  compare(args.place, grouping.place);
  compare(args.row_begin, grouping.row_begin);
}

void CheckGatherRows(CaseMemory& memory, Comparison& comparison, const GroupingShape& shape,
                     int64_t cols, bool has_weights) {
  const Grouping grouping = MakeGrouping(shape);
  TestNumbers numbers(73);
  const std::vector<float> x = numbers.Normals(shape.rows * cols);
  const std::vector<float> weights = numbers.Normals(shape.rows * shape.top_k);
  const int64_t pairs = shape.rows * shape.top_k;
  const float* device_x = memory.In(x);
  const int32_t* order = memory.In(grouping.order);
  const float* device_weights = has_weights ? memory.In(weights) : nullptr;
  ExactRows exact{pairs, cols, {}, {}};
  for (int64_t i = 0; i < pairs; ++i) {
    const int32_t pair = grouping.order[static_cast<size_t>(i)];
    for (int64_t col = 0; col < cols; ++col) {
      double value = x[static_cast<size_t>(pair / shape.top_k * cols + col)];
      if (has_weights) value *= weights[static_cast<size_t>(pair)];  // rounded once
      exact.values.push_back(value);
    }
  }
  exact.errors.resize(exact.values.size(), 0);
  CompareRows(memory, comparison, exact, [&](int64_t first, int64_t count, const RowsOut& out) {
    memory.Launch(&DeviceKernels::gather_rows,
                  {device_x, order == nullptr ? nullptr : order + first, count, cols, shape.top_k,
                   device_weights, out});
  });
}

// The options of combine_experts that are checked.
struct Combining {
  ElementType y_type;
  bool has_weights, add, has_bias;
};

// With integers and power-of-two weights, the sums are exact.
void CheckCombine(CaseMemory& memory, Comparison& comparison, const GroupingShape& shape,
                  int64_t cols, const Combining& combining, bool is_exact) {
  const Grouping grouping = MakeGrouping(shape);
  TestNumbers numbers(74);
  const auto make = [&](int64_t count) {
    return is_exact ? numbers.Integers(count, 9) : numbers.Normals(count);
  };
  const int64_t pairs = shape.rows * shape.top_k;
  std::vector<float> y = make(pairs * cols);
  std::vector<float> weights = make(pairs);
  if (is_exact) {
    for (float& weight : weights) weight = numbers.PowerOfTwo(-2, 2);
  }
  const std::vector<float> sum = make(shape.rows * cols);
  const std::vector<float> bias = make(shape.experts * cols);
  device::CombineExpertsArgs args{};
  if (combining.y_type == ElementType::kBF16) {
    const std::vector<uint16_t> bits = ToBf16Bits(y);
    for (size_t i = 0; i < y.size(); ++i) y[i] = FromBf16Bits(bits[i]);
    args.y = memory.In(bits);
  } else {
    args.y = memory.In(y);
  }
  args.y_type = combining.y_type;
  const int32_t* place = memory.In(grouping.place);
  const float* device_weights = combining.has_weights ? memory.In(weights) : nullptr;
  const int32_t* chosen = combining.has_bias ? memory.In(grouping.chosen) : nullptr;
  args.bias = combining.has_bias ? memory.In(bias) : nullptr;
  args.cols = cols;
  args.top_k = shape.top_k;
  args.add = combining.add;
  if (!memory.ok()) return;
  const auto combine = [&](int64_t first, int64_t count) {
    args.place = place + first * shape.top_k;
    args.weights = combining.has_weights ? device_weights + first * shape.top_k : nullptr;
    args.chosen = combining.has_bias ? chosen + first * shape.top_k : nullptr;
    args.rows = count;
    args.sum = memory.InOut(
        std::vector<float>(sum.begin() + first * cols, sum.begin() + (first + count) * cols));
    memory.Launch(&DeviceKernels::combine_experts, args);
    return memory.Read<float>(args.sum, count * cols);
  };
  const std::vector<float> got = combine(0, shape.rows);
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const auto at = static_cast<size_t>(row * cols + col);
      double value = combining.add ? sum[at] : 0, size = std::abs(value);
      for (int slot = 0; slot < shape.top_k; ++slot) {
        const auto pair = static_cast<size_t>(row * shape.top_k + slot);
        double part = y[static_cast<size_t>(grouping.place[pair] * cols + col)];
        double part_size = std::abs(part);
        if (combining.has_bias) {
          const double own = bias[static_cast<size_t>(grouping.chosen[pair] * cols + col)];
          part += own;
          part_size += std::abs(own);
        }
        const double weight = combining.has_weights ? weights[pair] : 1;
        value += part * weight;
        size += part_size * std::abs(weight);
      }
      comparison.AddF32(got[at], value, is_exact ? 0 : size * Gamma(shape.top_k + 2));
    }
  }
  comparison.SetSubject("a row alone");
  const int64_t row = shape.rows / 2;
  const std::vector<float> alone = combine(row, 1);
  for (size_t i = 0; i < alone.size(); ++i)
    comparison.AddF32(alone[i], got[static_cast<size_t>(row * cols) + i], 0);
  comparison.SetSubject("");
}

// Checks kernels/clamped_swiglu.h. Some inputs are beyond the limits on both sides.
void CheckClampedSwiglu(CaseMemory& memory, Comparison& comparison, const GroupingShape& shape,
                        int64_t width, bool has_bias) {
  constexpr float kAlpha = 1.702f, kLimit = 1.5f;
  const Grouping grouping = MakeGrouping(shape);
  TestNumbers numbers(75);
  const int64_t pairs = shape.rows * shape.top_k;
  std::vector<float> x = numbers.Normals(pairs * 2 * width);
  x[0] = -1e30f;  // a gate for which exp is infinite
  const std::vector<float> bias = numbers.Normals(shape.experts * 2 * width);
  const float* device_x = memory.In(x);
  const float* device_bias = has_bias ? memory.In(bias) : nullptr;
  const int32_t* order = has_bias ? memory.In(grouping.order) : nullptr;
  const int32_t* chosen = has_bias ? memory.In(grouping.chosen) : nullptr;
  if (!memory.ok()) return;
  ExactRows exact{pairs, width, {}, {}};
  for (int64_t row = 0; row < pairs; ++row) {
    const int32_t pair = grouping.order[static_cast<size_t>(row)];
    const int64_t expert = grouping.chosen[static_cast<size_t>(pair)];
    for (int64_t i = 0; i < width; ++i) {
      const auto biased = [&](int64_t column) -> float {  // rounded as in the kernel
        const float number = x[static_cast<size_t>(row * 2 * width + column)];
        return has_bias ? number + bias[static_cast<size_t>(expert * 2 * width + column)] : number;
      };
      const double gate = std::min(biased(2 * i), kLimit);
      const double up = std::clamp(biased(2 * i + 1), -kLimit, kLimit);
      const double value = (up + 1) * gate / (1 + std::exp(-kAlpha * gate));
      exact.values.push_back(value);
      // The rounding of the exponent causes a relative error of exp in proportion to the exponent's
      // magnitude. The roundings of exp, two sums, the division and the product are added to it.
      exact.errors.push_back(std::abs(value) * Gamma(kMathUnits + 4 + std::abs(kAlpha * gate)));
    }
  }
  CompareRows(memory, comparison, exact, [&](int64_t first, int64_t count, const RowsOut& out) {
    memory.Launch(&DeviceKernels::clamped_swiglu,
                  {device_x + first * 2 * width, count, width, kAlpha, kLimit, device_bias,
                   has_bias ? order + first : nullptr, chosen, out});
  });
}

}  // namespace

void CheckExperts(CheckRun& run) {
  std::vector<RouterShape> routers = {{"Llama 4", 3, 64, 16, 1, true, false},
                                      {"Qwen3", 5, 96, 128, 8, false, true},
                                      {"Gemma 4", 4, 72, 24, 4, false, true, true},
                                      {.name = "gpt-oss",
                                       .rows = 4,
                                       .k = 96,
                                       .experts = 32,
                                       .top_k = 4,
                                       .sigmoid = false,
                                       .normalize = true,
                                       .has_bias = true},
                                      {.name = "GLM-4.5",
                                       .rows = 5,
                                       .k = 64,
                                       .experts = 128,
                                       .top_k = 8,
                                       .sigmoid = true,
                                       .normalize = true,
                                       .has_choice_bias = true,
                                       .scale = 2.5f},
                                      {.name = "DeepSeek V3",
                                       .rows = 5,
                                       .k = 64,
                                       .experts = 64,
                                       .top_k = 8,
                                       .sigmoid = true,
                                       .normalize = true,
                                       .has_choice_bias = true,
                                       .scale = 2.5f,
                                       .num_groups = 8,
                                       .kept_groups = 4},
                                      {.name = "DeepSeek V2",
                                       .rows = 3,
                                       .k = 64,
                                       .experts = 40,
                                       .top_k = 6,
                                       .sigmoid = false,
                                       .normalize = false,
                                       .num_groups = 8,
                                       .kept_groups = 3,
                                       .group_best = 1},
                                      {.name = "ERNIE",
                                       .rows = 3,
                                       .k = 64,
                                       .experts = 16,
                                       .top_k = 6,
                                       .sigmoid = false,
                                       .normalize = true,
                                       .has_choice_bias = true},
                                      {.name = "Kolibri",
                                       .rows = 3,
                                       .k = 64,
                                       .experts = 16,
                                       .top_k = 3,
                                       .sigmoid = true,
                                       .normalize = true,
                                       .has_choice_bias = true,
                                       .chooses_by_logits = true},
                                      {"", 2, 128, 20, 2, false, false},
                                      {"", 1, 64, 4, 2, false, false},
                                      {"", 9, 100, 16, 1, true, false},
                                      {"", 17, 256, 128, 8, false, true},
                                      {"", 3, 2048, 37, 37, false, true},
                                      {"", 5, 33, 9, 3, true, true}};
  if (!run.with_all_shapes()) routers.resize(10);
  if (run.with_large_shapes()) {
    routers.push_back({"Scout", 64, 5120, 16, 1, true, false});
    routers.push_back({"Qwen3 30B", 257, 2048, 128, 8, false, true});
  }
  for (const RouterShape& shape : routers) {
    for (const bool is_exact : {true, false}) {
      run.Case("router",
               fmt::format("{} x {}, {} of {} experts, {} {}", shape.rows, shape.k, shape.top_k,
                           shape.experts, is_exact ? "integers" : "normal", shape.name),
               [&](CaseMemory& memory, Comparison& comparison) {
                 CheckRouter(memory, comparison, shape, is_exact);
               });
    }
  }
  run.Case("router", "equal logits and NaN", CheckRouterOfOddLogits);
  std::vector<GroupingShape> groupings = {{1, 1, 1},   {1, 1, 16},    {1, 2, 4},   {1, 8, 128},
                                          {7, 1, 16},  {7, 8, 128},   {5, 8, 128}, {300, 1, 16},
                                          {33, 3, 37}, {4000, 8, 128}};
  if (!run.with_all_shapes()) groupings.resize(6);
  if (run.with_large_shapes()) groupings.insert(groupings.end(), {{1024, 1, 16}, {1024, 8, 128}});
  for (const GroupingShape& shape : groupings) {
    run.Case("group_by_expert",
             fmt::format("{} x {} of {}", shape.rows, shape.top_k, shape.experts),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckGroupByExpert(memory, comparison, shape);
             });
  }
  constexpr GroupingShape kRows{6, 2, 16};
  std::vector<int64_t> widths = {160, 20, 64, 96, 2056};
  if (!run.with_all_shapes()) widths.resize(1);
  if (run.with_large_shapes()) widths.push_back(5120);
  for (const int64_t cols : widths) {
    for (const bool has_weights : {false, true}) {
      run.Case("gather_rows",
               fmt::format("6 x {}, 2 experts{}", cols, has_weights ? ", weighted" : ""),
               [&](CaseMemory& memory, Comparison& comparison) {
                 CheckGatherRows(memory, comparison, kRows, cols, has_weights);
               });
    }
  }
  for (const int64_t cols : widths) {
    for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
      for (const int what : {0, 1, 2, 3, 5, 6}) {
        const Combining combining{type, (what & 1) != 0, (what & 2) != 0, (what & 4) != 0};
        run.Case("combine_experts",
                 fmt::format(
                     "6 x {}, 3 experts, {}{}{}{}", cols,
                     type == ElementType::kF32 ? "f32" : "bf16", combining.has_bias ? ", bias" : "",
                     combining.has_weights ? ", weighted" : "", combining.add ? ", added" : ""),
                 [&](CaseMemory& memory, Comparison& comparison) {
                   for (const bool is_exact : {true, false})
                     CheckCombine(memory, comparison, {6, 3, 16}, cols, combining, is_exact);
                 });
      }
    }
  }
  for (const int64_t width : widths) {
    for (const bool has_bias : {false, true}) {
      run.Case("clamped_swiglu",
               fmt::format("6 x {}, 2 experts{}", width, has_bias ? ", bias" : ""),
               [&](CaseMemory& memory, Comparison& comparison) {
                 CheckClampedSwiglu(memory, comparison, kRows, width, has_bias);
               });
    }
  }
}

}  // namespace sluice::checks
