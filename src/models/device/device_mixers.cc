// Runs layers that keep states, and gates after attention, on a device.
#include "base/check.h"
#include "models/device/device_walk.h"

namespace sluice {

using program::kNone;

void DeviceWalk::operator()(const program::Convolve& op) {
  const MixerSpec& spec = program_.mixers[static_cast<size_t>(op.mixer)];
  const StateCache& states = step_.cache->states();
  const bool is_short = spec.kind == MixerSpec::Kind::kShortConvolution;
  kernels_.convolve(handle_, {.x = RowsAt<float>(op.x, op.stride),
                              .x_stride = op.stride,
                              .rows = rows_,
                              .channels = spec.conv_channels(),
                              .width = spec.conv_width,
                              .weight = Vector(op.weight),
                              .bias = Vector(op.bias),
                              .silu = !is_short,
                              .is_gated = is_short,
                              .out = At(op.out, 0),
                              .tails = states.tail(op.cache_layer, 0),
                              .stride = states.slot_numbers(),
                              .sequences = step_.inputs->states()});
}

void DeviceWalk::operator()(const program::UpdateState& op) {
  const MixerSpec& spec = program_.mixers[static_cast<size_t>(op.mixer)];
  const StateCache& states = step_.cache->states();
  device::UpdateStateArgs args = {};
  args.x = RowsAt<float>(op.x, op.stride);
  args.x_stride = op.stride;
  args.corrects = spec.kind == MixerSpec::Kind::kDeltaRule;
  args.decays_keys = spec.decays_keys;
  args.heads = spec.num_heads;
  args.key_heads = spec.num_key_heads;
  args.key_dim = spec.key_dim;
  args.head_dim = spec.head_dim;
  args.steps = RowsAt<float>(op.steps.buffer, op.steps.stride) + op.steps.begin;
  args.steps_stride = op.steps.stride;
  if (op.decays.buffer != kNone) {
    args.decays = RowsAt<float>(op.decays.buffer, op.decays.stride) + op.decays.begin;
    args.decays_stride = op.decays.stride;
  }
  args.a_log = Vector(op.a_log);
  args.step_bias = Vector(op.step_bias);
  args.skip = Vector(op.skip);
  args.rate_scale = spec.rate_scale;
  args.decay_bound = spec.decay_bound;
  args.step_factor = spec.input_factors[4];
  args.least_step = spec.least_step;
  args.most_step = spec.most_step;
  args.states = states.matrix(op.cache_layer, 0);
  args.stride = states.slot_numbers();
  args.sequences = step_.inputs->states();
  kernels_.update_state(handle_, args);
}

void DeviceWalk::operator()(const program::GateStates& op) {
  using Norm = MixerSpec::Norm;
  const MixerSpec& spec = program_.mixers[static_cast<size_t>(op.mixer)];
  const bool in_groups = spec.norm == Norm::kOfGroups;
  const int groups = in_groups ? spec.num_key_heads : spec.num_heads;
  kernels_.gate_states(
      handle_, {.x = RowsAt<float>(op.x, op.stride) + 2 * spec.keys_width(),
                .x_stride = op.stride,
                .z = RowsAt<float>(op.z.buffer, op.z.stride) + op.z.begin,
                .z_stride = op.z.stride,
                .rows = rows_,
                .groups = groups,
                .group_width = static_cast<int>(spec.values_width() / groups),
                .weight = spec.norm == Norm::kNone ? nullptr : Vector(op.norm),
                .weights_all = in_groups,
                .gates_first = in_groups && !spec.norms_before_gate && !spec.has_sigmoid_gate,
                .sigmoid = spec.has_sigmoid_gate,
                .eps = spec.norm_eps,
                .z_factor = spec.input_factors[0],
                .out = RowsAt<uint16_t>(op.out, spec.values_width())});
}

void DeviceWalk::operator()(const program::GateAttended& op) {
  kernels_.gate_rows(handle_,
                     {.x = RowsAt<uint16_t>(op.x, op.width),
                      .rows = rows_,
                      .width = op.width,
                      .gates = At(op.gates, 0),
                      .gates_bf16 = op.gates_type == ElementType::kBF16,
                      .gates_stride = op.gates_stride == 0 ? op.num_gates : op.gates_stride,
                      .num_gates = op.num_gates,
                      .softplus = op.is_softplus,
                      .bias = Vector(op.bias),
                      .num_biases = op.num_biases});
}

void DeviceWalk::operator()(const program::Add& op) {
  auto* const x = RowsAt<float>(op.x, op.width);
  kernels_.rms_norm(handle_, {.residual = x,
                              .delta = RowsAt<float>(op.y, op.width),
                              .delta_type = ElementType::kF32,
                              .weight = nullptr,
                              .eps = program_.norm_eps,
                              .rows = rows_,
                              .cols = op.width,
                              .out = {.data = x, .type = ElementType::kF32},
                              .out_f32 = nullptr});
}

void DeviceWalk::operator()(const program::Scale& op) {
  CHECK(op.vector == kNone && (op.stride == 0 || op.stride == op.width),
        "devices scale whole rows by a number");
  kernels_.cap_logits(handle_, {.x = RowsAt<float>(op.x, op.width),
                                .count = rows_ * op.width,
                                .cap = 0,
                                .scale = op.factor});
}

}  // namespace sluice
