// Checks of mixers.
#include <algorithm>
#include <cmath>
#include <vector>

#include "models/program/op_check_testing.h"

namespace sluice::op_checks {
namespace {

MixerSpec SomeMixer(MixerSpec::Kind kind) {
  MixerSpec spec{.kind = kind, .conv_width = 4, .num_heads = 4, .num_key_heads = 2};
  spec.head_dim = 37;
  spec.key_dim = 9;
  if (kind == MixerSpec::Kind::kShortConvolution) {
    spec.num_heads = 131;  // more channels than a thread processes at once
    spec.num_key_heads = 0;
    spec.head_dim = 1;
    spec.key_dim = 0;
  }
  return spec;
}

double Silu(double x) {
  return x / (1 + std::exp(-x));
}

}  // namespace

void CheckConvolve(OpBench& bench) {
  for (const MixerSpec::Kind kind :
       {MixerSpec::Kind::kShortConvolution, MixerSpec::Kind::kDeltaRule}) {
    const MixerSpec spec = SomeMixer(kind);
    const bool is_short = kind == MixerSpec::Kind::kShortConvolution;
    const int64_t channels = spec.conv_channels(), stride = spec.InputRows();
    const int64_t width = spec.conv_width;
    const BufferId x = bench.Numbers("x", stride);
    const BufferId out = is_short ? bench.Room("out", channels) : program::kNone;
    const auto weight = bench.Vector(width * channels), bias = bench.Vector(channels);
    const program::MixerId mixer = bench.Mixer(spec);
    bench.Snapshot();
    bench.program().ops = {program::Convolve{
        .mixer = mixer, .x = x, .stride = stride, .weight = weight, .bias = bias, .out = out}};
    bench.Run(/*num_threads=*/3);
    // Input of a row, counted from the sequence's first row; negative rows are in the tail.
    const auto input = [&](int64_t first, int64_t row, int64_t channel) -> double {
      if (row < first) {
        const float* const tail = bench.states().tail(0, bench.SlotOf(first));
        return bench.Before(tail)[(row - first + width - 1) * channels + channel];
      }
      const float* const numbers = bench.Before(x).data() + row * stride;
      return double{numbers[channel]} * (is_short ? numbers[channels + channel] : 1);
    };
    const auto expected = [&](int64_t row, int64_t channel) {
      double sum = bench.VectorOf(bias)[static_cast<size_t>(channel)];
      for (int64_t j = 0; j < width; ++j) {
        sum += bench.VectorOf(weight)[static_cast<size_t>(j * channels + channel)] *
               input(bench.FirstOf(row), row - width + 1 + j, channel);
      }
      return is_short
                 ? sum * bench.Before(x)[static_cast<size_t>(row * stride + 2 * channels + channel)]
                 : Silu(sum);
    };
    if (is_short) {
      bench.Expect(out, channels, expected);
    } else {
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t channel = 0; channel < channels; ++channel)
          ASSERT_NEAR(bench.After(x, row * stride + channel), expected(row, channel), 2e-5);
      }
    }
    for (int64_t j = 0; j < width - 1; ++j) {
      for (int64_t channel = 0; channel < channels; ++channel) {
        const auto at = [&](int32_t slot) {
          return bench.states().tail(0, slot)[j * channels + channel];
        };
        ASSERT_NEAR(at(2), input(0, 3 - width + 1 + j, channel), 1e-6);
        ASSERT_NEAR(at(0), input(3, 5 - width + 1 + j, channel), 1e-6);
        ASSERT_NEAR(at(3), input(0, 2 - width + 1 + j, channel), 1e-6) << "a snapshot";
      }
    }
  }
}

void CheckUpdateState(OpBench& bench) {
  using Kind = MixerSpec::Kind;
  const struct {
    Kind kind;
    bool decays_keys;
    float bound;
  } cases[] = {{Kind::kDeltaRule, false, 0},
               {Kind::kStateSpace, false, 0},
               {Kind::kDeltaRule, true, 0},
               {Kind::kDeltaRule, true, -2}};
  for (const auto& one_case : cases) {
    MixerSpec spec = SomeMixer(one_case.kind);
    const bool is_delta = one_case.kind == Kind::kDeltaRule;
    spec.decays_keys = one_case.decays_keys;
    spec.decay_bound = one_case.bound;
    spec.rate_scale = 2;
    spec.least_step = 0.1F;
    spec.most_step = 1.5F;
    if (!is_delta) spec.input_factors[4] = 0.8F;
    const int64_t heads = spec.num_heads, keys = spec.keys_width(), stride = spec.InputRows();
    const int64_t key_dim = spec.key_dim, head_dim = spec.head_dim;
    const BufferId x = bench.Numbers("x", stride);
    const int64_t num_decays = spec.decays_keys ? spec.decays_width() : heads;
    const BufferId steps = is_delta ? bench.Numbers("steps", heads + num_decays) : x;
    const BufferId gates = bench.Room("gates", heads + num_decays);
    const auto a_log = bench.Vector(heads), step_bias = bench.Vector(num_decays);
    const auto skip = is_delta ? program::kNone : bench.Vector(heads);
    const program::MixerId mixer = bench.Mixer(spec);
    bench.Snapshot();
    const int64_t first_step = is_delta ? 0 : stride - heads;
    const int64_t step_stride = is_delta ? heads + num_decays : stride;
    bench.program().ops = {
        program::UpdateState{.mixer = mixer,
                             .x = x,
                             .stride = stride,
                             .steps = {.buffer = steps, .begin = first_step, .stride = step_stride},
                             .decays = {.buffer = spec.decays_keys ? steps : program::kNone,
                                        .begin = heads,
                                        .stride = step_stride},
                             .gates = gates,
                             .a_log = a_log,
                             .step_bias = step_bias,
                             .skip = skip}};
    bench.Run(/*num_threads=*/3);
    const auto number = [](const std::vector<float>& vector, int64_t i) {
      return double{vector[static_cast<size_t>(i)]};
    };
    for (int64_t head = 0; head < heads; ++head) {
      std::vector<double> state;
      for (int64_t row = 0; row < kRows; ++row) {
        const int32_t slot = bench.SlotOf(row);
        if (row == bench.FirstOf(row)) {
          const float* const before =
              bench.Before(bench.states().matrix(0, slot)) + head * key_dim * head_dim;
          state.assign(before, before + key_dim * head_dim);
        }
        const float* const numbers = bench.Before(x).data() + row * stride;
        const float* const own_steps = bench.Before(steps).data() + row * step_stride + first_step;
        const float* q = numbers + head / 2 * key_dim;
        const float* k = q + keys;
        double step = 0;  // softplus that the last decay was made from
        const auto decay_of = [&](int64_t key) {
          const int64_t at = spec.decays_keys ? head * key_dim + key : head;
          const double factor = std::exp(number(bench.VectorOf(a_log), head));
          step = is_delta ? own_steps[heads + at] : 0.8 * own_steps[head];
          step += number(bench.VectorOf(step_bias), at);
          if (spec.decay_bound != 0)
            return std::exp(spec.decay_bound / (1 + std::exp(-factor * step)));
          step = std::log1p(std::exp(step));
          if (!is_delta) step = std::clamp(step, 0.1, 1.5);
          return std::exp(-factor * step);
        };
        std::vector<double> decays;
        for (int64_t key = 0; key < key_dim; ++key) decays.push_back(decay_of(key));
        const double rate = is_delta ? 2 / (1 + std::exp(-double{own_steps[head]})) : step;
        const auto length = [&](const float* vector) {
          double sum = 1e-6;
          for (int64_t i = 0; i < key_dim; ++i) sum += double{vector[i]} * vector[i];
          return is_delta ? std::sqrt(sum) : 1;
        };
        const double q_length = length(q) * (is_delta ? std::sqrt(double(key_dim)) : 1);
        const double k_length = length(k);
        for (int64_t i = 0; i < head_dim; ++i) {
          const double v = numbers[2 * keys + head * head_dim + i];
          double known = 0, sum = is_delta ? 0 : number(bench.VectorOf(skip), head) * v;
          for (int64_t key = 0; is_delta && key < key_dim; ++key)
            known += decays[static_cast<size_t>(key)] *
                     state[static_cast<size_t>(key * head_dim + i)] * k[key] / k_length;
          for (int64_t key = 0; key < key_dim; ++key) {
            double& one = state[static_cast<size_t>(key * head_dim + i)];
            one = decays[static_cast<size_t>(key)] * one + k[key] / k_length * rate * (v - known);
            sum += one * q[key] / q_length;
          }
          ASSERT_NEAR(bench.After(x, row * stride + 2 * keys + head * head_dim + i), sum,
                      1e-4 * (1 + std::abs(sum)))
              << "row " << row << " head " << head << " column " << i;
        }
        if (row == 0 || row == 3) continue;
        const float* const after =
            bench.states().matrix(0, row == 1 ? 3 : slot) + head * key_dim * head_dim;
        for (size_t i = 0; i < state.size(); ++i)
          ASSERT_NEAR(after[i], state[i], 1e-4 * (1 + std::abs(state[i]))) << "row " << row;
      }
    }
  }
}

void CheckGateStates(OpBench& bench) {
  using Norm = MixerSpec::Norm;
  const struct {
    Norm norm;
    bool before_gate;
  } cases[] = {{Norm::kNone, true},
               {Norm::kOfHeads, true},
               {Norm::kOfGroups, true},
               {Norm::kOfGroups, false}};
  for (const auto& one : cases) {
    MixerSpec spec = SomeMixer(MixerSpec::Kind::kStateSpace);
    spec.norm = one.norm;
    spec.norms_before_gate = one.before_gate;
    spec.norm_eps = 1e-5F;
    spec.input_factors[0] = 0.5F;
    const int64_t width = spec.values_width(), stride = spec.InputRows();
    const int64_t first = 2 * spec.keys_width();
    const int64_t of_norm = one.norm == Norm::kOfHeads ? spec.head_dim : width / 2;
    const BufferId x = bench.Numbers("x", stride);
    const BufferId out = bench.Room("out", width);
    const auto norm = one.norm == Norm::kNone
                          ? program::kNone
                          : bench.Vector(one.norm == Norm::kOfHeads ? of_norm : width);
    const program::MixerId mixer = bench.Mixer(spec);
    bench.program().ops = {
        program::GateStates{.mixer = mixer,
                            .x = x,
                            .stride = stride,
                            .z = {.buffer = x, .begin = first + width, .stride = stride},
                            .norm = norm,
                            .out = out}};
    bench.Run(/*num_threads=*/2);
    bench.Expect(out, width, [&](int64_t row, int64_t col) {
      const float* const values = bench.Before(x).data() + row * stride + first;
      const auto gate = [&](int64_t i) { return Silu(0.5 * values[width + i]); };
      if (one.norm == Norm::kNone) return values[col] * gate(col);
      const auto normed = [&](int64_t i) { return values[i] * (one.before_gate ? 1 : gate(i)); };
      double squares = 0;
      const int64_t begin = col / of_norm * of_norm;
      for (int64_t i = begin; i < begin + of_norm; ++i) squares += normed(i) * normed(i);
      const std::vector<float>& weights = bench.VectorOf(norm);
      const double weight =
          weights[static_cast<size_t>(one.norm == Norm::kOfHeads ? col % of_norm : col)];
      return weight * normed(col) / std::sqrt(squares / static_cast<double>(of_norm) + 1e-5) *
             (one.before_gate ? gate(col) : 1);
    });
  }
}

}  // namespace sluice::op_checks
