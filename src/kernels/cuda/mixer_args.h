// Arguments of the kernels of layers that keep a state for each sequence (MixerSpec of
// models/decoder_spec.h). device_kernels.h includes this file.
//
// A state is a slot of F32 elements; slots are `stride` elements apart. A slice of a step has the
// rows [first_row, first_row + num_tokens) of one sequence. The state after a token depends only on
// the previous state and on the token, and is computed by the same operations in the same order. So
// results are bit-identical for any division into slices.
#pragma once

#include <stdint.h>

namespace sluice::device {

// A request to copy the state after the first `rows` rows of a slice to slot `slot`.
struct StateKept {
  int32_t rows, slot;
};

struct StateSlice {
  int32_t first_row, num_tokens;
  // Contains the state before the slice and, after the step, the state after it; negative: padding.
  int32_t slot;
  int32_t first_kept, num_kept;  // entries of StateSlices::kept, in ascending order of rows
};

struct StateSlices {
  const StateSlice* slices;  // [num_slices], on the device, in ascending order of rows
  int num_slices;
  const StateKept* kept;
};

// The convolution of a mixer (kernels/convolution.h): out[r, c] = bias[c] + the sum over j < width
// of weight[j, c] * the input `width - 1 - j` rows earlier in the sequence, in this order, then
// SiLU if `silu`. The input of a row is its element c; if `is_gated`, rows are [x, g, o], each
// `channels` wide, the input is x * g, and out = o * the sum. Inputs before the slice are in the
// tail [width - 1, channels] of the slice's slot, the latest last. The tail is overwritten by the
// inputs of the slice's last rows. Rows of padding are not written. REQUIRES: 2 <= width <= 16.
struct ConvolveArgs {
  const float* x;
  int64_t x_stride;
  int64_t rows, channels;
  int width;
  const float* weight;  // [width, channels]
  const float* bias;    // [channels], or null
  bool silu, is_gated;
  void* out;  // [rows, channels]: F32, or BF16 if is_gated
  float* tails;
  int64_t stride;  // elements from one slot to the next
  StateSlices sequences;
};

// The recurrences of kernels/state_update.h: Gated DeltaNet (`corrects`), Kimi Delta Attention
// (also `decays_keys`) and Mamba-2. Rows are [q, k, v]: key_heads heads of key_dim elements of q,
// and of k, then `heads` heads of head_dim of v, which the results replace. Value head h has key
// head h / (heads / key_heads). For a delta rule, q and k are first scaled to length 1, and q is
// divided by sqrt(key_dim): x * factor / sqrt(sum of squares + 1e-6).
//
// Gates, with softplus(x) = x above 20, else log1p(e^x):
//   delta rule   rate = rate_scale * sigmoid(steps[h]);
//                decay = exp(-e^a_log[h] * softplus(steps[heads + h] + step_bias[h]))
//   decays_keys  the same rate; with a = decays[h * key_dim + i] + step_bias[h * key_dim + i]:
//                decay of key i = exp(decay_bound * sigmoid(e^a_log[h] * a)) if there is a bound,
//                else exp(-e^a_log[h] * softplus(a))
//   Mamba-2      rate = softplus(steps[h] * step_factor + step_bias[h]), at least least_step and,
//                if most_step > 0, at most most_step; decay = exp(-e^a_log[h] * rate)
//
// Sums over keys: each lane sums its own keys in ascending order; then the sums of four lanes are
// added. REQUIRES: key_dim <= kMostStateKeys.
struct UpdateStateArgs {
  float* x;
  int64_t x_stride;
  bool corrects, decays_keys;
  int heads, key_heads, key_dim, head_dim;
  const float* steps;  // F32, rows steps_stride apart
  int64_t steps_stride;
  const float* decays = nullptr;  // F32, rows decays_stride apart; for decays_keys
  int64_t decays_stride = 0;
  const float* a_log;      // [heads]
  const float* step_bias;  // [heads], or [heads, key_dim]
  const float* skip;       // [heads], or null
  float rate_scale = 1, decay_bound = 0;
  float step_factor = 1, least_step = 0, most_step = 0;
  float* states;  // states of a slot: [heads, key_dim, head_dim]
  int64_t stride;
  StateSlices sequences;
};
constexpr int kMostStateKeys = 256;

// Applies norms and gates to a mixer's results: out = norm(x) * f(z * z_factor), or norm(x * f(z *
// z_factor)) if the gate comes first. f: SiLU or, if `sigmoid`, the logistic function. norm: the
// RMS norm over each group of group_width elements, with weights [group_width] for all groups or,
// if `weights_all`, [groups, group_width]. Without weights there is no norm.
struct GateStatesArgs {
  const float* x;  // rows x_stride apart
  int64_t x_stride;
  const float* z;  // rows z_stride apart
  int64_t z_stride;
  int64_t rows;
  int groups, group_width;
  const float* weight;
  bool weights_all, gates_first, sigmoid;
  float eps, z_factor;
  uint16_t* out;  // BF16 [rows, groups * group_width]
};

// Multiplies x by the sigmoids (or, if `softplus`, the softpluses) of gates. Each gate applies to
// width / num_gates consecutive elements. First, bias[gate / (num_gates / num_biases)] is added to
// the gate.
struct GateRowsArgs {
  uint16_t* x;  // BF16 [rows, width]
  int64_t rows, width;
  const void* gates;  // kF32, or kBF16; rows gates_stride apart
  bool gates_bf16;
  int64_t gates_stride, num_gates;
  bool softplus;
  const float* bias;  // [num_biases], or null
  int64_t num_biases;
};

}  // namespace sluice::device
