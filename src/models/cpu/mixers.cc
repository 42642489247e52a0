// Mixers: convolutions, recurrences, and the norms and gates of their results.
#include <algorithm>
#include <cmath>
#include <span>

#include "base/check.h"
#include "kernels/convolution.h"
#include "kernels/rms_norm.h"
#include "kernels/silu_mul.h"
#include "kernels/state_update.h"
#include "models/cpu/snapshots.h"
#include "models/cpu/walk.h"
#include "tensor/bfloat16.h"

namespace sluice {
namespace {

using program::kNone;

float Softplus(float x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

}  // namespace

void CpuWalk::operator()(const program::Convolve& op) {
  const MixerSpec& spec = Mixer(op.mixer);
  const bool is_short = spec.kind == MixerSpec::Kind::kShortConvolution;
  const int64_t channels = spec.conv_channels();
  const kernels::Convolution convolution{.width = spec.conv_width,
                                         .channels = channels,
                                         .weight = Vector(op.weight),
                                         .bias = Vector(op.bias),
                                         .silu = !is_short};
  float* const x = F32At(op.x, op.stride);
  std::byte* const out = At(op.out, 0);
  const StateCache& states = step_.cache->states();
  const StepInput& input = step_.input;
  const auto slices = input.SlicesOf(0);
  // For a short convolution: computes x = B * x before the convolution, and `out` = C * x after it.
  const auto multiply = [&](const kernels::AttentionSlice& slice, int64_t begin, int64_t end) {
    for (int64_t row = slice.first_row; row < slice.first_row + slice.num_tokens; ++row) {
      float* const numbers = x + row * op.stride;
      for (int64_t i = begin; i < end; ++i) numbers[i] *= numbers[channels + i];
    }
  };
  const auto gate = [&](const kernels::AttentionSlice& slice, int64_t begin, int64_t end) {
    for (int64_t row = slice.first_row; row < slice.first_row + slice.num_tokens; ++row) {
      const float* const numbers = x + row * op.stride;
      for (int64_t i = begin; i < end; ++i) {
        const float value = numbers[i] * numbers[2 * channels + i];
        if (op.type == ElementType::kBF16)
          reinterpret_cast<BFloat16*>(out)[row * channels + i] = ToBFloat16(value);
        else
          reinterpret_cast<float*>(out)[row * channels + i] = value;
      }
    }
  };
  // Divides the work by channels, then by slices, so that every thread has a part of each sequence,
  // even of a long one.
  constexpr int64_t kBlock = 128;
  const int64_t blocks = (channels + kBlock - 1) / kBlock;
  const auto num_slices = std::ssize(slices);
  pool_.ParallelFor(blocks * num_slices, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t begin = task / num_slices * kBlock;
      const int64_t end = std::min(channels, begin + kBlock);
      const auto index = static_cast<size_t>(task % num_slices);
      const kernels::AttentionSlice& slice = slices[index];
      float* const tail = states.tail(op.cache_layer, input.states[index].slot);
      if (is_short) multiply(slice, begin, end);
      WithSnapshots<kernels::TailSnapshot>(
          input, index,
          [&](int64_t rows, int32_t slot) {
            return kernels::TailSnapshot{rows, states.tail(op.cache_layer, slot)};
          },
          [&](std::span<const kernels::TailSnapshot> snapshots, int64_t done, int64_t rows) {
            kernels::ConvolveRows(convolution, x + (slice.first_row + done) * op.stride, op.stride,
                                  rows, begin, end, tail, snapshots);
          });
      if (is_short) gate(slice, begin, end);
    }
  });
}

// Source: transformers' KimiLinearForgetGate and BailingHybridForgetGate.
void CpuWalk::MakeKeyDecays(const program::UpdateState& op, const MixerSpec& spec) const {
  const int64_t heads = spec.num_heads, width = spec.decays_width();
  const float* const rates = F32At(op.steps);
  const float* const inputs = F32At(op.decays);
  float* const gates = F32At(op.gates, width + heads);
  const float* const a_log = Vector(op.a_log);
  const float* const bias = Vector(op.step_bias);
  const auto sigmoid = [](float x) { return 1.0f / (1.0f + std::exp(-x)); };
  pool_.ParallelFor(rows_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* const in = inputs + row * op.decays.stride;
      float* const decays = gates + row * (width + heads);
      for (int64_t head = 0; head < heads; ++head) {
        const float factor = std::exp(a_log[head]);
        for (int64_t i = head * spec.key_dim; i < (head + 1) * spec.key_dim; ++i) {
          const float x = in[i] + bias[i];
          decays[i] = std::exp(spec.decay_bound != 0 ? spec.decay_bound * sigmoid(factor * x)
                                                     : -factor * Softplus(x));
        }
        decays[width + head] = spec.rate_scale * sigmoid(rates[row * op.steps.stride + head]);
      }
    }
  });
}

// Computes decays and rates for all rows and heads.
// Source: transformers' Qwen3NextGatedDeltaNet and mamba2_chunk_scan.
void CpuWalk::MakeGates(const program::UpdateState& op, const MixerSpec& spec) const {
  if (spec.decays_keys) return MakeKeyDecays(op, spec);
  const int64_t heads = spec.num_heads;
  const bool is_delta = spec.kind == MixerSpec::Kind::kDeltaRule;
  const float* const steps = F32At(op.steps);
  float* const gates = F32At(op.gates, 2 * heads);
  const float* const a_log = Vector(op.a_log);
  const float* const bias = Vector(op.step_bias);
  pool_.ParallelFor(rows_, 8, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* const in = steps + row * op.steps.stride;
      float* const decays = gates + row * 2 * heads;
      for (int64_t head = 0; head < heads; ++head) {
        float step = is_delta ? in[heads + head] : in[head] * spec.input_factors[4];
        step = Softplus(step + bias[head]);
        if (!is_delta) {
          step = std::max(step, spec.least_step);
          if (spec.most_step > 0) step = std::min(step, spec.most_step);
        }
        decays[head] = std::exp(-std::exp(a_log[head]) * step);
        decays[heads + head] = is_delta ? spec.rate_scale / (1.0f + std::exp(-in[head])) : step;
      }
    }
  });
}

void CpuWalk::operator()(const program::UpdateState& op) {
  const MixerSpec& spec = Mixer(op.mixer);
  const bool is_delta = spec.kind == MixerSpec::Kind::kDeltaRule;
  const int64_t heads = spec.num_heads, keys = spec.keys_width();
  float* const x = F32At(op.x, op.stride);
  MakeGates(op, spec);
  if (is_delta) {
    constexpr float kEps = 1e-6f;
    pool_.ParallelFor(rows_, 4, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t head = 0; head < 2 * spec.num_key_heads; ++head) {
          const float factor =
              head < spec.num_key_heads ? 1 / std::sqrt(static_cast<float>(spec.key_dim)) : 1;
          kernels::ScaleToLength(x + row * op.stride + head * spec.key_dim, spec.key_dim, kEps,
                                 factor);
        }
      }
    });
  }
  const int64_t decays = spec.decays_keys ? spec.decays_width() : heads;
  const float* const gates = F32At(op.gates, decays + heads);
  const float* const skip = Vector(op.skip);
  const StateCache& states = step_.cache->states();
  const StepInput& input = step_.input;
  const auto slices = input.SlicesOf(0);
  const auto num_slices = std::ssize(slices);
  constexpr int64_t kColumns = 64;
  const int64_t blocks = (spec.head_dim + kColumns - 1) / kColumns;
  const int64_t matrix = int64_t{spec.key_dim} * spec.head_dim;
  const int64_t group = heads / spec.num_key_heads;
  // Divides the work by heads and columns, then by slices, as Convolve does.
  pool_.ParallelFor(heads * blocks * num_slices, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t part = task / num_slices, head = part / blocks;
      const int64_t begin = part % blocks * kColumns;
      const int64_t end = std::min<int64_t>(spec.head_dim, begin + kColumns);
      const auto index = static_cast<size_t>(task % num_slices);
      const kernels::AttentionSlice& slice = slices[index];
      const auto matrix_of = [&](int32_t slot) {
        return states.matrix(op.cache_layer, slot) + head * matrix;
      };
      float* const state = matrix_of(input.states[index].slot);
      WithSnapshots<kernels::MatrixSnapshot>(
          input, index,
          [&](int64_t rows, int32_t slot) {
            return kernels::MatrixSnapshot{rows, matrix_of(slot)};
          },
          [&](std::span<const kernels::MatrixSnapshot> snapshots, int64_t done, int64_t rows) {
            const int64_t row = slice.first_row + done;
            float* const numbers = x + row * op.stride;
            const float* const gate = gates + row * (decays + heads);
            kernels::UpdateState({.q = numbers + head / group * spec.key_dim,
                                  .k = numbers + keys + head / group * spec.key_dim,
                                  .key_stride = op.stride,
                                  .v = numbers + 2 * keys + head * spec.head_dim,
                                  .value_stride = op.stride,
                                  .decay = gate + head * (spec.decays_keys ? spec.key_dim : 1),
                                  .rate = gate + decays + head,
                                  .decays_keys = spec.decays_keys,
                                  .gate_stride = decays + heads,
                                  .rows = rows},
                                 is_delta, skip == nullptr ? 0 : skip[head], spec.key_dim,
                                 spec.head_dim, begin, end, state, snapshots);
          });
    }
  });
}

void CpuWalk::GateBySigmoids(const float* z, int64_t z_stride, const float* x, int64_t stride,
                             int64_t width, std::byte* out, ElementType type) const {
  pool_.ParallelFor(rows_, 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t i = 0; i < width; ++i) {
        const float value = x[row * stride + i] / (1.0f + std::exp(-z[row * z_stride + i]));
        if (type == ElementType::kBF16)
          reinterpret_cast<BFloat16*>(out)[row * width + i] = ToBFloat16(value);
        else
          reinterpret_cast<float*>(out)[row * width + i] = value;
      }
    }
  });
}

void CpuWalk::operator()(const program::GateStates& op) {
  const MixerSpec& spec = Mixer(op.mixer);
  const int64_t width = spec.values_width();
  float* const values = F32At(op.x, op.stride) + 2 * spec.keys_width();
  float* const z = F32At(op.z);
  const int64_t z_stride = op.z.stride;
  std::byte* const out = At(op.out, 0);
  const float* const weight = Vector(op.norm);
  if (spec.input_factors[0] != 1) {
    pool_.ParallelFor(rows_, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t i = 0; i < width; ++i) z[row * z_stride + i] *= spec.input_factors[0];
      }
    });
  }
  const bool in_groups = spec.norm == MixerSpec::Norm::kOfGroups;
  const auto norm = [&](void* to, int64_t to_stride, ElementType type) {
    kernels::GroupRmsNorm(pool_, values, op.stride, weight, spec.norm_eps, rows_,
                          spec.num_key_heads, width / spec.num_key_heads, to, to_stride, type);
  };
  if (spec.has_sigmoid_gate) {
    kernels::HeadRmsNorm(pool_, values, op.stride, weight, spec.norm_eps, rows_, spec.num_heads,
                         spec.head_dim);
    return GateBySigmoids(z, z_stride, values, op.stride, width, out, op.type);
  }
  CHECK_EQ(z_stride, op.stride);
  if (in_groups && !spec.norms_before_gate) {
    kernels::SiluGate(pool_, z, values, op.stride, rows_, width, values, op.stride,
                      ElementType::kF32);
    return norm(out, width, op.type);
  }
  if (in_groups) norm(values, op.stride, ElementType::kF32);
  if (spec.norm == MixerSpec::Norm::kOfHeads) {
    kernels::HeadRmsNorm(pool_, values, op.stride, weight, spec.norm_eps, rows_, spec.num_heads,
                         spec.head_dim);
  }
  kernels::SiluGate(pool_, z, values, op.stride, rows_, width, out, width, op.type);
}

}  // namespace sluice
