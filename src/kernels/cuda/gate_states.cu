#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr int kStateGateThreads = 128;

// Each block computes one group of a row.
__global__ void __launch_bounds__(kStateGateThreads) GateStatesKernel(device::GateStatesArgs args) {
  auto* const shared = reinterpret_cast<float*>(SharedMemory());
  const int64_t row = blockIdx.x, group = blockIdx.y, first = group * args.group_width;
  const float* const x = args.x + row * args.x_stride + first;
  const float* const z = args.z + row * args.z_stride + first;
  const auto gate = [&](int i) {
    const float number = z[i] * args.z_factor;
    return args.sigmoid ? Sigmoid(number) : number * Sigmoid(number);
  };
  const auto number = [&](int i) { return args.gates_first ? x[i] * gate(i) : x[i]; };
  float factor = 1;
  if (args.weight != nullptr) {
    float squares = 0;
    for (int i = static_cast<int>(threadIdx.x); i < args.group_width; i += kStateGateThreads)
      squares += number(i) * number(i);
    factor =
        1.0f / sqrtf(BlockSum(squares, shared) / static_cast<float>(args.group_width) + args.eps);
  }
  const float* const weight =
      args.weight == nullptr ? nullptr : args.weight + (args.weights_all ? first : 0);
  uint16_t* const out = args.out + row * args.groups * args.group_width + first;
  for (int i = static_cast<int>(threadIdx.x); i < args.group_width; i += kStateGateThreads) {
    float value = number(i);
    if (weight != nullptr) value = weight[i] * (value * factor);
    if (!args.gates_first) value *= gate(i);
    out[i] = FloatToBf16(value);
  }
}

__global__ void __launch_bounds__(kStateGateThreads) GateRowsKernel(device::GateRowsArgs args) {
  const int64_t row = blockIdx.x, column = int64_t{blockIdx.y} * kStateGateThreads + threadIdx.x;
  if (column >= args.width) return;
  const int64_t index = column / (args.width / args.num_gates);
  const int64_t at = row * args.gates_stride + index;
  float gate = args.gates_bf16 ? Bf16ToFloat(static_cast<const uint16_t*>(args.gates)[at])
                               : static_cast<const float*>(args.gates)[at];
  if (args.bias != nullptr) gate += args.bias[index / (args.num_gates / args.num_biases)];
  const float factor = args.softplus ? (gate > 20 ? gate : log1pf(expf(gate))) : Sigmoid(gate);
  uint16_t& x = args.x[row * args.width + column];
  x = FloatToBf16(Bf16ToFloat(x) * factor);
}

}  // namespace

void LaunchGateStates(const StreamHandle& stream, const device::GateStatesArgs& args) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.grid_y = static_cast<unsigned>(args.groups);
  shape.threads = kStateGateThreads;
  shape.shared_bytes = 32 * sizeof(float);
  Launch<GateStatesKernel>(stream, "gate_states", shape, args);
}

void LaunchGateRows(const StreamHandle& stream, const device::GateRowsArgs& args) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.grid_y = static_cast<unsigned>((args.width + kStateGateThreads - 1) / kStateGateThreads);
  shape.threads = kStateGateThreads;
  Launch<GateRowsKernel>(stream, "gate_rows", shape, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
