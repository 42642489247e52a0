// Checks of norms and sums of rows.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "models/program/op_check_testing.h"

namespace sluice::op_checks {
namespace {

double MeanSquare(const std::vector<float>& x, int64_t first, int64_t count) {
  double sum = 0;
  for (int64_t i = first; i < first + count; ++i)
    sum += double{x[static_cast<size_t>(i)]} * x[static_cast<size_t>(i)];
  return sum / static_cast<double>(count);
}

}  // namespace

void CheckNorm(OpBench& bench) {
  constexpr int64_t kWidth = 24;
  const BufferId residual = bench.Numbers("residual", kWidth);
  const BufferId delta = bench.Numbers("delta", kWidth);
  const BufferId out = bench.Room("out", kWidth);
  const auto weight = bench.Vector(kWidth);
  bench.program().ops.emplace_back(program::Norm{
      .residual = residual, .delta = delta, .weight = weight, .out = out, .width = kWidth});
  bench.Run();
  std::vector<float> sum = bench.Before(residual);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += bench.Before(delta)[i];
  bench.Expect(residual, kWidth, [&](int64_t row, int64_t col) {
    return sum[static_cast<size_t>(row * kWidth + col)];
  });
  bench.Expect(out, kWidth, [&](int64_t row, int64_t col) {
    return bench.VectorOf(weight)[static_cast<size_t>(col)] *
           sum[static_cast<size_t>(row * kWidth + col)] /
           std::sqrt(MeanSquare(sum, row * kWidth, kWidth) + 1e-5);
  });
}

void CheckLayerNorm(OpBench& bench) {
  constexpr int64_t kWidth = 24;
  const BufferId residual = bench.Numbers("residual", kWidth);
  const BufferId delta = bench.Numbers("delta", kWidth);
  const BufferId out = bench.Room("out", kWidth);
  const auto weight = bench.Vector(kWidth), bias = bench.Vector(kWidth);
  bench.program().ops.emplace_back(program::LayerNorm{.residual = residual,
                                                      .delta = delta,
                                                      .weight = weight,
                                                      .bias = bias,
                                                      .out = out,
                                                      .scratch = bench.Room("scratch", kWidth),
                                                      .width = kWidth});
  bench.Run();
  std::vector<float> sum = bench.Before(residual);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += bench.Before(delta)[i];
  bench.Expect(out, kWidth, [&](int64_t row, int64_t col) {
    const float* const x = sum.data() + row * kWidth;
    const double mean = std::accumulate(x, x + kWidth, 0.0) / kWidth;
    double variance = 0;
    for (int64_t i = 0; i < kWidth; ++i) variance += (x[i] - mean) * (x[i] - mean) / kWidth;
    return (x[col] - mean) / std::sqrt(variance + 1e-5) *
               bench.VectorOf(weight)[static_cast<size_t>(col)] +
           bench.VectorOf(bias)[static_cast<size_t>(col)];
  });
}

void CheckNormRows(OpBench& bench) {
  constexpr int64_t kHeads = 3, kWidth = 16;
  const BufferId x = bench.Numbers("x", kHeads * kWidth);
  const auto weight = bench.Vector(kWidth);
  bench.program().ops.emplace_back(
      program::NormRows{.x = x, .weight = weight, .heads = kHeads, .width = kWidth, .eps = 0.5F});
  bench.Run();
  bench.Expect(x, kHeads * kWidth, [&](int64_t row, int64_t col) {
    const int64_t first = row * kHeads * kWidth + col / kWidth * kWidth;
    return bench.VectorOf(weight)[static_cast<size_t>(col % kWidth)] *
           bench.Before(x)[static_cast<size_t>(row * kHeads * kWidth + col)] /
           std::sqrt(MeanSquare(bench.Before(x), first, kWidth) + 0.5);
  });
}

// Checks Scale, Add and Mix, one after the other.
void CheckSums(OpBench& bench) {
  constexpr int64_t kWidth = 7;
  const BufferId x = bench.Numbers("x", kWidth);
  const BufferId y = bench.Numbers("y", kWidth);
  const auto factor = bench.Vector(1);
  bench.program().ops = {
      program::Scale{.x = x, .width = kWidth, .factor = 3},
      program::Scale{.x = y, .width = kWidth, .vector = factor},
      program::Add{.x = x, .y = y, .width = kWidth},
      program::Mix{.x = x, .y = y, .width = kWidth, .x_factor = 0.5F, .sum_factor = 2}};
  bench.Run();
  bench.Expect(x, kWidth, [&](int64_t row, int64_t col) {
    const auto i = static_cast<size_t>(row * kWidth + col);
    const double scaled = double{bench.Before(y)[i]} * bench.VectorOf(factor).front();
    return ((3.0 * bench.Before(x)[i] + scaled) * 0.5 + scaled) * 2;
  });
}

// Checks limits, then layer norms of heads, with weights per head and with shared weights.
void CheckHeads(OpBench& bench) {
  constexpr int64_t kHeads = 3, kWidth = 8, kStride = kHeads * kWidth + 2;
  for (const bool has_each : {false, true}) {
    const BufferId x = bench.Numbers("x", kStride);
    const auto weight = bench.Vector(has_each ? kHeads * kWidth : kWidth);
    const auto bias = has_each ? program::kNone : bench.Vector(kWidth);
    const program::Columns columns{.buffer = x, .begin = 1, .stride = kStride};
    bench.program().ops = {
        program::LimitRows{.x = columns, .width = kHeads * kWidth, .limit = 0.75F},
        program::NormHeads{.x = columns,
                           .heads = kHeads,
                           .width = kWidth,
                           .weight = weight,
                           .bias = bias,
                           .has_each = has_each}};
    bench.Run();
    bench.Expect(x, kStride, [&](int64_t row, int64_t col) {
      const float* const numbers = bench.Before(x).data() + row * kStride;
      if (col == 0 || col == kStride - 1) return double{numbers[col]};
      const int64_t first = (col - 1) / kWidth * kWidth + 1;
      const auto limited = [&](int64_t i) { return std::clamp(double{numbers[i]}, -0.75, 0.75); };
      double mean = 0, variance = 0;
      for (int64_t i = first; i < first + kWidth; ++i) mean += limited(i) / kWidth;
      for (int64_t i = first; i < first + kWidth; ++i)
        variance += (limited(i) - mean) * (limited(i) - mean) / kWidth;
      const auto place = static_cast<size_t>(has_each ? col - 1 : (col - 1) % kWidth);
      return (limited(col) - mean) / std::sqrt(variance + 1e-5) * bench.VectorOf(weight)[place] +
             (has_each ? 0 : bench.VectorOf(bias)[place]);
    });
  }
}

void CheckNormTo(OpBench& bench) {
  constexpr int64_t kWidth = 24;
  const BufferId x = bench.Numbers("x", kWidth);
  const BufferId out = bench.Room("out", kWidth);
  const auto weight = bench.Vector(kWidth);
  bench.program().ops = {program::NormTo{.x = x, .weight = weight, .out = out, .width = kWidth}};
  bench.Run();
  bench.Expect(out, kWidth, [&](int64_t row, int64_t col) {
    return bench.VectorOf(weight)[static_cast<size_t>(col)] *
           bench.Before(x)[static_cast<size_t>(row * kWidth + col)] /
           std::sqrt(MeanSquare(bench.Before(x), row * kWidth, kWidth) + 1e-5);
  });
}

}  // namespace sluice::op_checks
