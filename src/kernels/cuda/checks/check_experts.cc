// Routing of rows to experts, and the way there and back, against the CPU's operators.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/row_outputs.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/tolerances.h"
#include "kernels/experts.h"

namespace sluice::checks {
namespace {

struct RouterShape {
  const char* name;
  int64_t rows, k, experts;
  int top_k;
  bool sigmoid, normalize;
};

// Integers: the logits are exact, so the choice has one right answer, equals included.
Status CheckRouter(CheckRun& run, CaseMemory& memory, Comparison& comparison,
                   const RouterShape& shape) {
  TestNumbers numbers(71);
  std::vector<float> x = numbers.Integers(shape.rows * shape.k, 2);
  const std::vector<float> weight = numbers.Integers(shape.experts * shape.k, 1);
  // Small enough that exp of the logits stays a number.
  for (float& value : x) value *= 0.0625f;
  const int64_t pairs = shape.rows * shape.top_k;
  device::RouterArgs args{};
  args.x = memory.In(x);
  args.weight = memory.In(ToBf16Bits(weight));
  args.rows = shape.rows;
  args.k = shape.k;
  args.num_experts = shape.experts;
  args.top_k = shape.top_k;
  args.sigmoid = shape.sigmoid;
  args.normalize = shape.normalize;
  args.logits = memory.Out<float>(shape.rows * shape.experts);
  args.chosen = memory.Out<int32_t>(pairs);
  args.expert_weights = memory.Out<float>(pairs);
  if (!memory.ok()) return memory.status();
  run.device().kernels().router(run.device().handle(), args);
  const auto chosen = memory.Read<int32_t>(args.chosen, pairs);
  const auto weights = memory.Read<float>(args.expert_weights, pairs);
  if (!memory.ok()) return memory.status();

  std::vector<float> logits(static_cast<size_t>(shape.rows * shape.experts));
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t expert = 0; expert < shape.experts; ++expert) {
      float sum = 0;
      for (int64_t i = 0; i < shape.k; ++i)
        sum += x[static_cast<size_t>(row * shape.k + i)] *
               weight[static_cast<size_t>(expert * shape.k + i)];
      logits[static_cast<size_t>(row * shape.experts + expert)] = sum;
    }
  }
  ThreadPool pool(1);
  std::vector<int32_t> expected(chosen.size());
  std::vector<float> expected_weights(weights.size());
  kernels::SelectExperts(
      pool, logits.data(), shape.rows, shape.experts, shape.top_k,
      shape.sigmoid ? kernels::RouterScore::kSigmoid : kernels::RouterScore::kSoftmax,
      shape.normalize, expected.data(), expected_weights.data());
  for (size_t i = 0; i < chosen.size(); ++i) {
    comparison.AddEqual(chosen[i], expected[i]);
    // On both sides: exp, the sum of all, the division, the sum of the chosen, another division.
    const double roundings =
        2 * (2 * kMathUnits + static_cast<double>(shape.experts) + shape.top_k + 4);
    comparison.AddF32(weights[i], expected_weights[i],
                      std::abs(expected_weights[i]) * Gamma(roundings));
  }
  return {};
}

struct Grouping {
  std::vector<int32_t> chosen, order, place, row_begin;
};
Grouping MakeGrouping(int64_t rows, int top_k, int64_t experts) {
  TestNumbers numbers(72);
  Grouping grouping;
  for (int64_t row = 0; row < rows; ++row) {
    // Different experts in a row; some experts get nothing.
    const int64_t first = numbers.Integer(0, experts - 1);
    for (int slot = 0; slot < top_k; ++slot)
      grouping.chosen.push_back(static_cast<int32_t>((first + slot * 3) % experts));
  }
  const auto pairs = static_cast<size_t>(rows * top_k);
  grouping.order.resize(pairs);
  grouping.place.resize(pairs);
  grouping.row_begin.resize(static_cast<size_t>(experts) + 1);
  kernels::GroupByExpert(grouping.chosen.data(), rows, top_k, experts, grouping.order.data(),
                         grouping.place.data(), grouping.row_begin.data());
  return grouping;
}

Status CheckGroupByExpert(CheckRun& run, CaseMemory& memory, Comparison& comparison, int64_t rows,
                          int top_k, int64_t experts) {
  const Grouping grouping = MakeGrouping(rows, top_k, experts);
  const int64_t pairs = rows * top_k;
  device::GroupByExpertArgs args{};
  args.chosen = memory.In(grouping.chosen);
  args.rows = rows;
  args.top_k = top_k;
  args.num_experts = experts;
  args.order = memory.Out<int32_t>(pairs);
  args.place = memory.Out<int32_t>(pairs);
  args.row_begin = memory.Out<int32_t>(experts + 1);
  if (!memory.ok()) return memory.status();
  run.device().kernels().group_by_expert(run.device().handle(), args);
  const auto compare = [&](const int32_t* from, const std::vector<int32_t>& expected) {
    const auto got = memory.Read<int32_t>(from, static_cast<int64_t>(expected.size()));
    for (size_t i = 0; memory.ok() && i < got.size(); ++i) comparison.AddEqual(got[i], expected[i]);
  };
  compare(args.order, grouping.order);
  compare(args.place, grouping.place);
  compare(args.row_begin, grouping.row_begin);
  return {};
}

Status CheckGatherRows(CheckRun& run, CaseMemory& memory, Comparison& comparison, int64_t rows,
                       int64_t cols, int top_k, const RowFormat& format, bool has_weights) {
  const Grouping grouping = MakeGrouping(rows, top_k, 16);
  TestNumbers numbers(73);
  const std::vector<float> x = numbers.Normals(rows * cols);
  const std::vector<float> weights = numbers.Normals(rows * top_k);
  const int64_t pairs = rows * top_k;
  RowsOutput output(memory, format, pairs, cols);
  const float* device_x = memory.In(x);
  const int32_t* order = memory.In(grouping.order);
  const float* device_weights = has_weights ? memory.In(weights) : nullptr;
  if (!memory.ok()) return memory.status();
  run.device().kernels().gather_rows(
      run.device().handle(), {device_x, order, pairs, cols, top_k, device_weights, output.args()});
  ExactRows exact{pairs, cols, {}, {}};
  for (int64_t i = 0; i < pairs; ++i) {
    const int32_t pair = grouping.order[static_cast<size_t>(i)];
    for (int64_t col = 0; col < cols; ++col) {
      double value = x[static_cast<size_t>(pair / top_k * cols + col)];
      if (has_weights) value *= weights[static_cast<size_t>(pair)];
      exact.values.push_back(value);
      exact.errors.push_back(has_weights ? std::abs(value) * Gamma(1) : 0);
    }
  }
  output.Compare(exact, comparison);
  return {};
}

Status CheckCombine(CheckRun& run, CaseMemory& memory, Comparison& comparison, int64_t rows,
                    int64_t cols, int top_k, ElementType y_type, bool has_weights, bool add) {
  const Grouping grouping = MakeGrouping(rows, top_k, 16);
  TestNumbers numbers(74);
  std::vector<float> y = numbers.Normals(rows * top_k * cols);
  const std::vector<float> weights = numbers.Normals(rows * top_k);
  const std::vector<float> sum = numbers.Normals(rows * cols);
  device::CombineExpertsArgs args{};
  if (y_type == ElementType::kBF16) {
    const std::vector<uint16_t> bits = ToBf16Bits(y);
    for (size_t i = 0; i < y.size(); ++i) y[i] = FromBf16Bits(bits[i]);
    args.y = memory.In(bits);
  } else {
    args.y = memory.In(y);
  }
  args.y_type = y_type;
  args.place = memory.In(grouping.place);
  args.weights = has_weights ? memory.In(weights) : nullptr;
  args.rows = rows;
  args.cols = cols;
  args.top_k = top_k;
  args.add = add;
  args.sum = memory.InOut(sum);
  if (!memory.ok()) return memory.status();
  run.device().kernels().combine_experts(run.device().handle(), args);
  const auto got = memory.Read<float>(args.sum, rows * cols);
  if (!memory.ok()) return memory.status();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const auto at = static_cast<size_t>(row * cols + col);
      double value = add ? sum[at] : 0, size = std::abs(value);
      for (int slot = 0; slot < top_k; ++slot) {
        const auto pair = static_cast<size_t>(row * top_k + slot);
        double part = y[static_cast<size_t>(grouping.place[pair] * cols + col)];
        if (has_weights) part *= weights[pair];
        value += part;
        size += std::abs(part);
      }
      comparison.AddF32(got[at], value, size * Gamma(top_k + 1));
    }
  }
  return {};
}

}  // namespace

void CheckExperts(CheckRun& run) {
  std::vector<RouterShape> routers = {{"Llama 4", 3, 64, 16, 1, true, false},
                                      {"Qwen3", 5, 96, 128, 8, false, true},
                                      {"", 2, 128, 20, 2, false, false}};
  if (run.with_large_shapes()) {
    routers.push_back({"Scout", 64, 5120, 16, 1, true, false});
    routers.push_back({"Qwen3 30B", 257, 2048, 128, 8, false, true});
  }
  for (const RouterShape& shape : routers) {
    run.Case("router",
             fmt::format("{} x {}, {} of {} experts {}", shape.rows, shape.k, shape.top_k,
                         shape.experts, shape.name),
             [&](CaseMemory& memory, Comparison& comparison) {
               return CheckRouter(run, memory, comparison, shape);
             });
  }
  std::vector<int64_t> row_counts = {1, 7};
  if (run.with_large_shapes()) row_counts.push_back(1024);
  for (const int64_t rows : row_counts) {
    for (const int top_k : {1, 8}) {
      const int64_t experts = top_k == 1 ? 16 : 128;
      run.Case("group_by_expert", fmt::format("{} x {} of {}", rows, top_k, experts),
               [&](CaseMemory& memory, Comparison& comparison) {
                 return CheckGroupByExpert(run, memory, comparison, rows, top_k, experts);
               });
    }
  }
  const int64_t cols = run.with_large_shapes() ? 5120 : 160;
  for (const RowFormat& format : kRowFormats) {
    for (const bool has_weights : {false, true}) {
      run.Case("gather_rows",
               fmt::format("6 x {}, 2 experts, {}{}", cols, format.name,
                           has_weights ? ", weighted" : ""),
               [&](CaseMemory& memory, Comparison& comparison) {
                 return CheckGatherRows(run, memory, comparison, 6, cols, 2, format, has_weights);
               });
    }
  }
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    for (const int what : {0, 1, 2, 3}) {
      run.Case(
          "combine_experts",
          fmt::format("6 x {}, 3 experts, {}{}{}", cols, type == ElementType::kF32 ? "f32" : "bf16",
                      (what & 1) != 0 ? ", weighted" : "", (what & 2) != 0 ? ", added" : ""),
          [&](CaseMemory& memory, Comparison& comparison) {
            return CheckCombine(run, memory, comparison, 6, cols, 3, type, (what & 1) != 0,
                                (what & 2) != 0);
          });
    }
  }
}

}  // namespace sluice::checks
