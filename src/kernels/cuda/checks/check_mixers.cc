// Checks the layers that keep states: convolutions, recurrences, norms and gates of their results.
// Computes exact results with bounds of their errors, token by token. The results of a sequence
// that is divided at any row must be bit-identical to those of the undivided sequence.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/tolerances.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;
using device::StateKept;
using device::StateSlice;

double ExactSigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double ExactSoftplus(double x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

// Slices of consecutive rows, each with a separate slot. The slots of `kept` come after these
// slots.
struct Sequences {
  std::vector<StateSlice> slices;
  std::vector<StateKept> kept;
  int64_t rows = 0;
  int32_t num_slots = 0;

  // `kept_rows`: for each slice, the rows after which its state is copied.
  Sequences(const std::vector<int32_t>& tokens,
            const std::vector<std::vector<int32_t>>& kept_rows = {}) {
    num_slots = static_cast<int32_t>(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      slices.push_back({static_cast<int32_t>(rows), tokens[i],
                        static_cast<int32_t>(tokens.size() - 1 - i),
                        static_cast<int32_t>(kept.size()), 0});
      rows += tokens[i];
      if (i >= kept_rows.size()) continue;
      for (const int32_t row : kept_rows[i]) {
        kept.push_back({row, num_slots++});
        ++slices.back().num_kept;
      }
    }
  }
  device::StateSlices Upload(CaseMemory& memory) const {
    return {.slices = memory.In(slices),
            .num_slices = static_cast<int>(slices.size()),
            .kept = kept.empty() ? nullptr : memory.In(kept)};
  }
};

// The states of all slots, with `numbers` elements each, `stride` elements apart.
struct States {
  std::vector<float> initial;
  int64_t numbers = 0, stride = 0;

  States(const Sequences& sequences, int64_t count, TestNumbers& random)
      : numbers(count), stride(count + 5) {
    initial = random.Normals(sequences.num_slots * stride);
  }
  const float* Of(const std::vector<float>& all, int32_t slot) const {
    return all.data() + slot * stride;
  }
};

// --- Convolutions -------------------------------------------------------------------------------

struct ConvolutionShape {
  int width;
  int64_t channels;
  bool has_bias, is_gated;
};

void CheckConvolve(CaseMemory& memory, Comparison& comparison, const ConvolutionShape& shape) {
  TestNumbers numbers(51);
  const Sequences whole({1, 7, 2, 1}, {{1}, {2, 6}, {}, {}});
  const int64_t channels = shape.channels;
  const int64_t stride = (shape.is_gated ? 3 : 1) * channels + 3, taps = shape.width - 1;
  const std::vector<float> x = numbers.Normals(whole.rows * stride);
  const std::vector<float> weight = numbers.Normals(shape.width * channels);
  const std::vector<float> bias = numbers.Normals(channels);
  const States states(whole, taps * channels, numbers);
  struct Result {
    std::vector<uint16_t> bf16;
    std::vector<float> f32, tails;
  };
  device::ConvolveArgs common{};
  common.x_stride = stride;
  common.channels = channels;
  common.width = shape.width;
  common.weight = memory.In(weight);
  common.bias = shape.has_bias ? memory.In(bias) : nullptr;
  common.silu = !shape.is_gated;
  common.is_gated = shape.is_gated;
  common.stride = states.stride;
  const auto run = [&](const Sequences& sequences, int64_t first_row,
                       const std::vector<float>& tails) {
    device::ConvolveArgs args = common;
    args.x = memory.In(std::vector(x.begin() + first_row * stride,
                                   x.begin() + (first_row + sequences.rows) * stride));
    args.rows = sequences.rows;
    args.tails = memory.InOut(tails);
    args.sequences = sequences.Upload(memory);
    const int64_t count = sequences.rows * channels;
    Result result;
    if (shape.is_gated) {
      auto* const out = memory.Out<uint16_t>(count);
      args.out = out;
      memory.Launch(&DeviceKernels::convolve, args);
      result.bf16 = memory.Read(out, count);
    } else {
      auto* const out = memory.Out<float>(count);
      args.out = out;
      memory.Launch(&DeviceKernels::convolve, args);
      result.f32 = memory.Read(out, count);
    }
    result.tails = memory.Read(args.tails, static_cast<int64_t>(tails.size()));
    return result;
  };
  const Result got = run(whole, 0, states.initial);
  // Returns the input of a row of the slice in F32, computed as in the kernel.
  const auto input = [&](const StateSlice& slice, int64_t row, int64_t channel) {
    if (row < 0) return states.Of(states.initial, slice.slot)[(row + taps) * channels + channel];
    const float* const from = x.data() + (slice.first_row + row) * stride + channel;
    return shape.is_gated ? from[0] * from[channels] : from[0];
  };
  std::vector<bool> is_written(static_cast<size_t>(whole.num_slots));
  for (const StateSlice& slice : whole.slices) {
    comparison.SetSubject("results");
    for (int64_t row = 0; row < slice.num_tokens; ++row) {
      for (int64_t channel = 0; channel < channels; ++channel) {
        double sum = shape.has_bias ? bias[static_cast<size_t>(channel)] : 0;
        double size = std::abs(sum);
        for (int j = 0; j < shape.width; ++j) {
          const double product = double{weight[static_cast<size_t>(j * channels + channel)]} *
                                 input(slice, row - taps + j, channel);
          sum += product;
          size += std::abs(product);
        }
        const double error = size * Gamma(shape.width + 2);
        const auto at = static_cast<size_t>((slice.first_row + row) * channels + channel);
        if (shape.is_gated) {
          const double gate =
              x[static_cast<size_t>((slice.first_row + row) * stride + 2 * channels + channel)];
          comparison.AddBf16(got.bf16[at], sum * gate,
                             std::abs(gate) * (error + std::abs(sum) * Gamma(1)));
        } else {
          // The derivative of silu is at most 1.1.
          const double value = sum * ExactSigmoid(sum);
          comparison.AddF32(got.f32[at], value,
                            1.1 * error + std::abs(value) * Gamma(kMathUnits + 4));
        }
      }
    }
    comparison.SetSubject("tails");
    const auto compare_tail = [&](int64_t rows, int32_t slot) {
      is_written[static_cast<size_t>(slot)] = true;
      for (int64_t i = 0; i < states.numbers; ++i) {
        comparison.AddF32(states.Of(got.tails, slot)[i],
                          input(slice, rows - taps + i / channels, i % channels), 0);
      }
    };
    compare_tail(slice.num_tokens, slice.slot);
    for (int i = 0; i < slice.num_kept; ++i) {
      const StateKept& kept = whole.kept[static_cast<size_t>(int64_t{slice.first_kept} + i)];
      compare_tail(kept.rows, kept.slot);
    }
  }
  comparison.SetSubject("the second slice in pieces");
  std::vector<float> tails(states.initial.begin() + 2 * states.stride,
                           states.initial.begin() + 3 * states.stride);
  int64_t row = 1;
  for (const int32_t count : {1, 2, 4}) {
    const Result piece = run(Sequences({count}), row, tails);
    tails = piece.tails;
    for (int64_t i = 0; i < count * channels; ++i) {
      const auto at = static_cast<size_t>(row * channels + i);
      if (shape.is_gated)
        comparison.AddEqual(piece.bf16[static_cast<size_t>(i)], got.bf16[at]);
      else
        comparison.AddF32(piece.f32[static_cast<size_t>(i)], got.f32[at], 0);
    }
    row += count;
  }
  for (int64_t i = 0; i < states.numbers; ++i)
    comparison.AddF32(tails[static_cast<size_t>(i)], states.Of(got.tails, 2)[i], 0);
}

// --- Recurrences --------------------------------------------------------------------------------

struct RecurrenceShape {
  const char* name;
  bool corrects, decays_keys;
  int heads, key_heads, key_dim, head_dim;
  float decay_bound = 0;
  bool has_skip = false;
};

// A number and the bound of its error.
struct Bounded {
  double value = 0, error = 0;
};

class Recurrence {
 public:
  Recurrence(const RecurrenceShape& shape, const Sequences& whole)
      : shape_(shape), whole_(whole), numbers_(52), states_(whole, MatrixNumbers(), numbers_) {
    const int64_t keys = int64_t{shape.heads} * shape.key_dim;
    stride_ = 2 * KeysWidth() + int64_t{shape.heads} * shape.head_dim;
    steps_stride_ = (shape.corrects && !shape.decays_keys ? 2 : 1) * shape.heads + 1;
    x_ = numbers_.Normals(whole.rows * stride_);
    steps_ = numbers_.Normals(whole.rows * steps_stride_);
    decays_ = numbers_.Normals(whole.rows * keys);
    a_log_ = numbers_.Normals(shape.heads);
    for (float& number : a_log_) number = number * 0.5f - 1;
    step_bias_ = numbers_.Normals(shape.decays_keys ? keys : shape.heads);
    skip_ = numbers_.Normals(shape.heads);
  }

  struct Result {
    std::vector<float> x, states;
  };
  Result Run(CaseMemory& memory, const Sequences& sequences, int64_t first,
             const std::vector<float>& states) const {
    const auto cut = [&](const std::vector<float>& values, int64_t width) {
      return std::vector(values.begin() + first * width,
                         values.begin() + (first + sequences.rows) * width);
    };
    const int64_t keys = int64_t{shape_.heads} * shape_.key_dim;
    device::UpdateStateArgs args{};
    args.x = memory.InOut(cut(x_, stride_));
    args.x_stride = stride_;
    args.corrects = shape_.corrects;
    args.decays_keys = shape_.decays_keys;
    args.heads = shape_.heads;
    args.key_heads = shape_.key_heads;
    args.key_dim = shape_.key_dim;
    args.head_dim = shape_.head_dim;
    args.steps = memory.In(cut(steps_, steps_stride_));
    args.steps_stride = steps_stride_;
    if (shape_.decays_keys) {
      args.decays = memory.In(cut(decays_, keys));
      args.decays_stride = keys;
    }
    args.a_log = memory.In(a_log_);
    args.step_bias = memory.In(step_bias_);
    args.skip = shape_.has_skip ? memory.In(skip_) : nullptr;
    args.rate_scale = kRateScale;
    args.decay_bound = shape_.decay_bound;
    args.step_factor = kStepFactor;
    args.least_step = kLeastStep;
    args.most_step = kMostStep;
    args.states = memory.InOut(states);
    args.stride = states_.stride;
    args.sequences = sequences.Upload(memory);
    memory.Launch(&DeviceKernels::update_state, args);
    return {memory.Read(args.x, sequences.rows * stride_),
            memory.Read(args.states, static_cast<int64_t>(states.size()))};
  }
  Result Run(CaseMemory& memory) const { return Run(memory, whole_, 0, states_.initial); }

  void Compare(const Result& got, Comparison& comparison) const {
    for (const StateSlice& slice : whole_.slices) {
      for (int head = 0; head < shape_.heads; ++head) CompareHead(got, slice, head, comparison);
    }
  }
  // Computes the rows of one slice in pieces, with the slice's own state. Results and final state
  // must be bit-identical to those of the whole slice in `got`.
  void ComparePieces(CaseMemory& memory, const Result& got, size_t index,
                     const std::vector<int32_t>& pieces, Comparison& comparison) const {
    const StateSlice& slice = whole_.slices[index];
    const float* const from = states_.Of(states_.initial, slice.slot);
    std::vector<float> state(from, from + states_.stride);
    int64_t row = slice.first_row;
    for (const int32_t count : pieces) {
      const Result piece = Run(memory, Sequences({count}), row, state);
      state = piece.states;
      for (int64_t i = 0; i < count * stride_; ++i) {
        comparison.AddF32(piece.x[static_cast<size_t>(i)],
                          got.x[static_cast<size_t>(row * stride_ + i)], 0);
      }
      row += count;
    }
    for (int64_t i = 0; i < states_.numbers; ++i) {
      comparison.AddF32(state[static_cast<size_t>(i)], states_.Of(got.states, slice.slot)[i], 0);
    }
  }

 private:
  static constexpr float kRateScale = 2, kStepFactor = 0.75f, kLeastStep = 0.25f, kMostStep = 1.5f;

  int64_t KeysWidth() const { return int64_t{shape_.key_heads} * shape_.key_dim; }
  int64_t MatrixNumbers() const { return int64_t{shape_.heads} * shape_.key_dim * shape_.head_dim; }

  // Returns a head of q or k.
  std::vector<Bounded> KeyOf(const float* from, double factor) const {
    std::vector<Bounded> key(static_cast<size_t>(shape_.key_dim));
    double squares = 0;
    for (int i = 0; i < shape_.key_dim; ++i) squares += double{from[i]} * from[i];
    const double scale = shape_.corrects ? factor / std::sqrt(squares + double{1e-6f}) : 1;
    for (size_t i = 0; i < key.size(); ++i) {
      key[i].value = from[i] * scale;
      // Includes half of the roundings of the sum of squares, and the roundings of the root, the
      // factor, a division and a product.
      key[i].error =
          shape_.corrects ? std::abs(key[i].value) * Gamma((shape_.key_dim / 32.0 + 8) / 2 + 5) : 0;
    }
    return key;
  }

  void CompareHead(const Result& got, const StateSlice& slice, int head,
                   Comparison& comparison) const {
    const int key_dim = shape_.key_dim, head_dim = shape_.head_dim;
    const int64_t matrix = int64_t{head} * key_dim * head_dim;
    std::vector<Bounded> state(static_cast<size_t>(key_dim * head_dim));
    for (size_t i = 0; i < state.size(); ++i)
      state[i].value = states_.Of(states_.initial, slice.slot)[matrix + static_cast<int64_t>(i)];
    const auto compare_state = [&](int32_t slot) {
      comparison.SetSubject(fmt::format("the state of head {} in slot {}", head, slot));
      for (size_t i = 0; i < state.size(); ++i) {
        comparison.AddF32(states_.Of(got.states, slot)[matrix + static_cast<int64_t>(i)],
                          state[i].value, state[i].error);
      }
    };
    int next_kept = 0;
    for (int64_t row = slice.first_row; row < slice.first_row + slice.num_tokens; ++row) {
      const auto gates = GatesOf(row, head);
      const float* const numbers = x_.data() + row * stride_;
      const int64_t key_head = head / (shape_.heads / shape_.key_heads);
      const auto q = KeyOf(numbers + key_head * key_dim, 1 / std::sqrt(double(key_dim)));
      const auto k = KeyOf(numbers + KeysWidth() + key_head * key_dim, 1);
      comparison.SetSubject(fmt::format("row {} of head {}", row, head));
      for (int column = 0; column < head_dim; ++column) {
        const int64_t at = 2 * KeysWidth() + int64_t{head} * head_dim + column;
        Step(gates, q, k, numbers[at], column, state,
             got.x[static_cast<size_t>(row * stride_ + at)], head, comparison);
      }
      for (; next_kept < slice.num_kept; ++next_kept) {
        const StateKept& kept =
            whole_.kept[static_cast<size_t>(int64_t{slice.first_kept} + next_kept)];
        if (kept.rows != row - slice.first_row + 1) break;
        compare_state(kept.slot);
      }
    }
    compare_state(slice.slot);
  }

  struct Gates {
    std::vector<Bounded> decays;  // decay of each key
    Bounded rate;
  };
  Gates GatesOf(int64_t row, int head) const {
    const float* const steps = steps_.data() + row * steps_stride_;
    const double a = std::exp(double{a_log_[static_cast<size_t>(head)]});
    Gates gates;
    // Returns exp of a number with its error bound. `roundings`: relative error of the number.
    const auto exp_of = [](double exponent, double roundings) {
      const double value = std::exp(exponent);
      return Bounded{value, value * (std::abs(exponent) * Gamma(roundings) + Gamma(kMathUnits))};
    };
    constexpr double kOfSoftplus = 4 * kMathUnits + 6;
    if (shape_.corrects) {
      gates.rate.value = kRateScale * ExactSigmoid(steps[head]);
      gates.rate.error = gates.rate.value * Gamma(kMathUnits + 4);
    } else {
      double step =
          ExactSoftplus(steps[head] * kStepFactor + step_bias_[static_cast<size_t>(head)]);
      step = std::min<double>(std::max<double>(step, kLeastStep), kMostStep);
      // Before softplus, whose slope is at most 1, there are two roundings of numbers of this size.
      gates.rate = {
          step,
          step * Gamma(kOfSoftplus) +
              (std::abs(steps[head]) + std::abs(step_bias_[static_cast<size_t>(head)])) * Gamma(2)};
    }
    for (int key = 0; key < shape_.key_dim; ++key) {
      if (!shape_.decays_keys) {
        double step = gates.rate.value, more = gates.rate.error;
        if (shape_.corrects) {
          const double bias = step_bias_[static_cast<size_t>(head)];
          const double given = steps[shape_.heads + head];
          step = ExactSoftplus(given + bias);
          more = (std::abs(given) + std::abs(bias)) * Gamma(1);
        }
        Bounded decay = exp_of(-a * step, kOfSoftplus + 2 * kMathUnits);
        decay.error += decay.value * a * more * 1.01;
        gates.decays.push_back(decay);
        continue;
      }
      const auto at = static_cast<size_t>(int64_t{head} * shape_.key_dim + key);
      const double given = decays_[static_cast<size_t>(row) * static_cast<size_t>(shape_.heads) *
                                       static_cast<size_t>(shape_.key_dim) +
                                   at];
      const double sum = given + step_bias_[at];
      const double more = (std::abs(given) + std::abs(step_bias_[at])) * Gamma(2 * kMathUnits);
      const double exponent = shape_.decay_bound != 0 ? shape_.decay_bound * ExactSigmoid(a * sum)
                                                      : -a * ExactSoftplus(sum);
      Bounded decay = exp_of(exponent, kOfSoftplus + 2 * kMathUnits);
      decay.error += decay.value * a * more * std::max(1.0, std::abs(double{shape_.decay_bound}));
      gates.decays.push_back(decay);
    }
    return gates;
  }

  // Applies a token's update to one column of the state, and compares its result with `got`.
  void Step(const Gates& gates, const std::vector<Bounded>& q, const std::vector<Bounded>& k,
            double v, int column, std::vector<Bounded>& state, float got, int head,
            Comparison& comparison) const {
    const auto count = static_cast<size_t>(shape_.key_dim);
    const double sums = Gamma(shape_.key_dim / 4.0 + 6);
    const auto at = [&](size_t key) {
      return key * static_cast<size_t>(shape_.head_dim) + static_cast<size_t>(column);
    };
    Bounded known;
    for (size_t key = 0; shape_.corrects && key < count; ++key) {
      const Bounded& s = state[at(key)];
      const Bounded& decay = gates.decays[key];
      const double factor = decay.value * k[key].value;
      const double product = s.value * factor;
      known.value += product;
      known.error +=
          s.error * std::abs(factor) + std::abs(product) * sums +
          std::abs(s.value) * (decay.error * std::abs(k[key].value) + decay.value * k[key].error);
    }
    const double difference = v - known.value;
    Bounded write;
    write.value = gates.rate.value * difference;
    write.error =
        gates.rate.value * (known.error + (std::abs(v) + std::abs(known.value)) * Gamma(2)) +
        gates.rate.error * std::abs(difference) + std::abs(write.value) * Gamma(1);
    const double skip = shape_.has_skip ? skip_[static_cast<size_t>(head)] : 0;
    Bounded sum{skip * v, std::abs(skip * v) * Gamma(2)};
    double size = std::abs(skip * v);
    for (size_t key = 0; key < count; ++key) {
      Bounded& s = state[at(key)];
      const Bounded& decay = gates.decays[key];
      const double kept = decay.value * s.value, added = k[key].value * write.value;
      s.error = decay.value * s.error + decay.error * std::abs(s.value) +
                std::abs(k[key].value) * write.error + k[key].error * std::abs(write.value) +
                (std::abs(kept) + std::abs(added)) * Gamma(2);
      s.value = kept + added;
      const double product = q[key].value * s.value;
      sum.value += product;
      sum.error += std::abs(q[key].value) * s.error + q[key].error * std::abs(s.value);
      size += std::abs(product);
    }
    comparison.AddF32(got, sum.value, sum.error + size * sums);
  }

  RecurrenceShape shape_;
  Sequences whole_;
  TestNumbers numbers_;
  States states_;
  int64_t stride_ = 0, steps_stride_ = 0;
  std::vector<float> x_, steps_, decays_, a_log_, step_bias_, skip_;
};

void CheckUpdateState(CaseMemory& memory, Comparison& comparison, const RecurrenceShape& shape) {
  const Recurrence recurrence(shape, Sequences({1, 19, 2}, {{1}, {3, 3, 16}, {}}));
  const Recurrence::Result got = recurrence.Run(memory);
  recurrence.Compare(got, comparison);
  comparison.SetSubject("the second slice in pieces");
  recurrence.ComparePieces(memory, got, 1, {1, 9, 8, 1}, comparison);
  comparison.SetSubject("the second slice in two pieces");
  recurrence.ComparePieces(memory, got, 1, {11, 8}, comparison);
}

// --- Norms and gates ----------------------------------------------------------------------------

struct StateGateShape {
  int groups, group_width;
  bool has_norm, weights_all, gates_first, sigmoid;
};

void CheckGateStates(CaseMemory& memory, Comparison& comparison, const StateGateShape& shape) {
  constexpr int64_t kRows = 3;
  constexpr float kEps = 1e-5f, kFactor = 0.5f;
  TestNumbers numbers(53);
  const int64_t width = int64_t{shape.groups} * shape.group_width;
  const int64_t x_stride = width + 4, z_stride = width + 7;
  const std::vector<float> x = numbers.Normals(kRows * x_stride);
  const std::vector<float> z = numbers.Normals(kRows * z_stride);
  const std::vector<float> weight = numbers.Normals(shape.weights_all ? width : shape.group_width);
  device::GateStatesArgs args{};
  args.x = memory.In(x);
  args.x_stride = x_stride;
  args.z = memory.In(z);
  args.z_stride = z_stride;
  args.rows = kRows;
  args.groups = shape.groups;
  args.group_width = shape.group_width;
  args.weight = shape.has_norm ? memory.In(weight) : nullptr;
  args.weights_all = shape.weights_all;
  args.gates_first = shape.gates_first;
  args.sigmoid = shape.sigmoid;
  args.eps = kEps;
  args.z_factor = kFactor;
  args.out = memory.Out<uint16_t>(kRows * width);
  memory.Launch(&DeviceKernels::gate_states, args);
  const std::vector<uint16_t> got = memory.Read(args.out, kRows * width);
  // The error bound includes the roundings of the gate, of the norm with its sum of squares, and of
  // the products.
  const double roundings = 2 * (kMathUnits + 5) + (shape.group_width / 128.0 + 12) / 2 + 6;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int group = 0; group < shape.groups; ++group) {
      const int64_t first = int64_t{group} * shape.group_width;
      const auto gate = [&](int64_t i) {
        const double number = double{z[static_cast<size_t>(row * z_stride + first + i)]} * kFactor;
        return shape.sigmoid ? ExactSigmoid(number) : number * ExactSigmoid(number);
      };
      const auto number = [&](int64_t i) {
        const double value = x[static_cast<size_t>(row * x_stride + first + i)];
        return shape.gates_first ? value * gate(i) : value;
      };
      double squares = 0;
      for (int64_t i = 0; i < shape.group_width; ++i) squares += number(i) * number(i);
      const double factor = shape.has_norm ? 1 / std::sqrt(squares / shape.group_width + kEps) : 1;
      for (int64_t i = 0; i < shape.group_width; ++i) {
        double value = number(i) * factor;
        if (shape.has_norm) value *= weight[static_cast<size_t>(shape.weights_all ? first + i : i)];
        if (!shape.gates_first) value *= gate(i);
        comparison.AddBf16(got[static_cast<size_t>(row * width + first + i)], value,
                           std::abs(value) * Gamma(roundings));
      }
    }
  }
}

struct GateRowsShape {
  int64_t width, num_gates, num_biases;  // num_biases 0: none
  bool gates_bf16, softplus;
};

void CheckGateRows(CaseMemory& memory, Comparison& comparison, const GateRowsShape& shape) {
  constexpr int64_t kRows = 3;
  TestNumbers numbers(54);
  const int64_t stride = shape.num_gates + 6;
  std::vector<float> x = numbers.Normals(kRows * shape.width);
  std::vector<float> gates = numbers.Normals(kRows * stride);
  for (float& number : x) number = FromBf16Bits(ToBFloat16(number).bits);
  for (float& number : gates) {
    number *= 4;
    if (shape.gates_bf16) number = FromBf16Bits(ToBFloat16(number).bits);
  }
  gates[1] = 30;
  const std::vector<float> bias = numbers.Normals(shape.num_biases);
  device::GateRowsArgs args{};
  args.x = memory.InOut(ToBf16Bits(x));
  args.rows = kRows;
  args.width = shape.width;
  args.gates =
      shape.gates_bf16 ? static_cast<const void*>(memory.In(ToBf16Bits(gates))) : memory.In(gates);
  args.gates_bf16 = shape.gates_bf16;
  args.gates_stride = stride;
  args.num_gates = shape.num_gates;
  args.softplus = shape.softplus;
  args.bias = shape.num_biases > 0 ? memory.In(bias) : nullptr;
  args.num_biases = shape.num_biases;
  memory.Launch(&DeviceKernels::gate_rows, args);
  const std::vector<uint16_t> got = memory.Read(args.x, kRows * shape.width);
  for (int64_t i = 0; i < kRows * shape.width; ++i) {
    const int64_t gate = i % shape.width / (shape.width / shape.num_gates);
    double number = gates[static_cast<size_t>(i / shape.width * stride + gate)];
    double size = 0;
    if (shape.num_biases > 0) {
      const double more = bias[static_cast<size_t>(gate / (shape.num_gates / shape.num_biases))];
      size = std::abs(number) + std::abs(more);
      number += more;
    }
    const double factor = shape.softplus ? ExactSoftplus(number) : ExactSigmoid(number);
    const double value = x[static_cast<size_t>(i)] * factor;
    // The rounding of the sum changes either function by at most the same relative amount as it
    // changes the sum.
    comparison.AddBf16(got[static_cast<size_t>(i)], value,
                       std::abs(value) * (Gamma(4 * kMathUnits + 6) + size * Gamma(1)));
  }
}

}  // namespace

void CheckMixers(CheckRun& run) {
  std::vector<ConvolutionShape> convolutions = {{4, 40, true, false},
                                                {3, 24, false, true},
                                                {2, 130, false, false},
                                                {16, 6, true, false},
                                                {4, 300, true, true}};
  std::vector<RecurrenceShape> recurrences = {{"Gated DeltaNet", true, false, 4, 2, 12, 20},
                                              {"Mamba-2", false, false, 4, 2, 10, 16, 0, true},
                                              {"KDA", true, true, 2, 2, 16, 16},
                                              {"Gated DeltaNet", true, false, 2, 1, 128, 40},
                                              {"KDA, bounded", true, true, 1, 1, 72, 33, -5},
                                              {"Mamba-2", false, false, 2, 1, 200, 24, 0, true}};
  std::vector<StateGateShape> gates = {{4, 20, true, false, false, false},
                                       {2, 24, true, true, true, false},
                                       {3, 16, true, false, false, true},
                                       {2, 200, true, true, false, false},
                                       {2, 10, false, false, false, false}};
  std::vector<GateRowsShape> rows = {{64, 64, 0, true, false},
                                     {64, 4, 0, false, false},
                                     {300, 4, 2, false, true},
                                     {40, 40, 0, false, true}};
  if (!run.with_all_shapes()) {
    convolutions.resize(2);
    recurrences.resize(3);
    gates.resize(3);
    rows.resize(3);
  }
  if (run.with_large_shapes()) {
    convolutions.push_back({4, 8192, false, false});
    recurrences.push_back({"Qwen3-Next", true, false, 32, 16, 128, 128});
    recurrences.push_back({"Nemotron-H", false, false, 128, 8, 128, 64, 0, true});
    recurrences.push_back({"Kimi Linear", true, true, 32, 32, 128, 128});
  }
  for (const ConvolutionShape& shape : convolutions) {
    run.Case("convolve",
             fmt::format("{} channels, {} inputs{}{}", shape.channels, shape.width,
                         shape.has_bias ? ", bias" : "", shape.is_gated ? ", gated" : ""),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckConvolve(memory, comparison, shape);
             });
  }
  for (const RecurrenceShape& shape : recurrences) {
    run.Case("update_state",
             fmt::format("{}: {}/{} heads of {} x {}", shape.name, shape.heads, shape.key_heads,
                         shape.key_dim, shape.head_dim),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckUpdateState(memory, comparison, shape);
             });
  }
  for (const StateGateShape& shape : gates) {
    run.Case("gate_states",
             fmt::format("3 x {} x {}{}{}{}", shape.groups, shape.group_width,
                         shape.has_norm ? "" : ", no norm", shape.gates_first ? ", gate first" : "",
                         shape.sigmoid ? ", sigmoid" : ""),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckGateStates(memory, comparison, shape);
             });
  }
  for (const GateRowsShape& shape : rows) {
    run.Case(
        "gate_rows",
        fmt::format("3 x {}, {} gates{}{}", shape.width, shape.num_gates,
                    shape.num_biases > 0 ? ", biases" : "", shape.softplus ? ", softplus" : ""),
        [&](CaseMemory& memory, Comparison& comparison) {
          CheckGateRows(memory, comparison, shape);
        });
  }
}

}  // namespace sluice::checks
