// Checks of activations and gates.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "models/program/op_check_testing.h"

namespace sluice::op_checks {

void CheckGates(OpBench& bench) {
  constexpr int64_t kWidth = 19;
  using program::Gate;
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  const auto tanh_gelu = [](double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  };
  const auto gelu = [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); };
  const auto relu2 = [](double x) { return std::max(x, 0.0) * std::max(x, 0.0); };
  struct Case {
    Gate gate;
    bool is_gated;
    std::function<double(double)> function;
  };
  const Case cases[] = {
      {Gate::kSilu, true, silu},
      {Gate::kGeluTanh, true, tanh_gelu},
      {Gate::kGeluErf, true, gelu},
      {Gate::kPlainGelu, false, gelu},
      {Gate::kPlainRelu, false, [](double x) { return std::max(x, 0.0); }},
      {Gate::kRule, true, relu2},
      {Gate::kRule, false, relu2},
  };
  for (const Case& one : cases) {
    const int64_t x_width = one.is_gated ? 2 * kWidth : kWidth;
    const BufferId x = bench.Numbers("x", x_width);
    const BufferId y = bench.Room("y", kWidth);
    bench.program().ops = {program::GateMul{.gate = one.gate,
                                            .x = x,
                                            .y = y,
                                            .width = kWidth,
                                            .rule = {.kind = kernels::ActivationKind::kRelu2},
                                            .is_gated = one.is_gated}};
    bench.Run();
    bench.Expect(y, kWidth, [&](int64_t row, int64_t col) {
      const float* const numbers = bench.Before(x).data() + row * x_width;
      return one.function(numbers[col]) * (one.is_gated ? numbers[kWidth + col] : 1);
    });
  }
}

// xIELU's parameters as stored; a softplus of the first two gives the alphas.
void CheckXielu(OpBench& bench) {
  constexpr int64_t kWidth = 19;
  const BufferId x = bench.Numbers("x", kWidth);
  const BufferId y = bench.Room("y", kWidth);
  const auto numbers = bench.Vector(4);
  bench.program().ops = {program::GateMul{.gate = program::Gate::kRule,
                                          .x = x,
                                          .y = y,
                                          .width = kWidth,
                                          .rule = {.kind = kernels::ActivationKind::kXielu},
                                          .is_gated = false,
                                          .numbers = numbers}};
  bench.Run();
  bench.Expect(y, kWidth, [&](int64_t row, int64_t col) {
    const std::vector<float>& stored = bench.VectorOf(numbers);
    const double z = bench.Before(x)[static_cast<size_t>(row * kWidth + col)];
    const double beta = stored[2], alpha_p = std::log1p(std::exp(double{stored[0]}));
    const double alpha_n = beta + std::log1p(std::exp(double{stored[1]}));
    return beta * z +
           (z > 0 ? alpha_p * z * z : alpha_n * (std::expm1(std::min(z, double{stored[3]})) - z));
  });
}

// Checks a gate per element, and a gate per three elements.
void CheckGateAttended(OpBench& bench) {
  constexpr int64_t kWidth = 12;
  for (const int64_t num_gates : {kWidth, kWidth / 3}) {
    const BufferId x = bench.Numbers("x", kWidth);
    const BufferId gates = bench.Numbers("gates", num_gates);
    bench.program().ops = {
        program::GateAttended{.x = x, .gates = gates, .width = kWidth, .num_gates = num_gates}};
    bench.Run();
    bench.Expect(x, kWidth, [&](int64_t row, int64_t col) {
      const auto gate = static_cast<size_t>(row * num_gates + col * num_gates / kWidth);
      return bench.Before(x)[static_cast<size_t>(row * kWidth + col)] /
             (1 + std::exp(-double{bench.Before(gates)[gate]}));
    });
  }
}

// Checks softplus gates, with a bias per two gates.
void CheckSoftplusGates(OpBench& bench) {
  constexpr int64_t kWidth = 12, kGates = 6;
  const BufferId x = bench.Numbers("x", kWidth);
  const BufferId gates = bench.Numbers("gates", kGates);
  const auto bias = bench.Vector(kGates / 2);
  bench.program().ops = {program::GateAttended{.x = x,
                                               .gates = gates,
                                               .width = kWidth,
                                               .num_gates = kGates,
                                               .is_softplus = true,
                                               .bias = bias}};
  bench.Run();
  bench.Expect(x, kWidth, [&](int64_t row, int64_t col) {
    const int64_t gate = col * kGates / kWidth;
    const double sum = double{bench.Before(gates)[static_cast<size_t>(row * kGates + gate)]} +
                       bench.VectorOf(bias)[static_cast<size_t>(gate / 2)];
    return bench.Before(x)[static_cast<size_t>(row * kWidth + col)] * std::log1p(std::exp(sum));
  });
}

}  // namespace sluice::op_checks
