// Uses two launches. The first computes the results of all rows, each from its own inputs. The
// second updates the tails of the sequences, which the first launch reads.
#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr int kConvolveThreads = 128;

// Returns the index of the slice that contains this row: the last slice that begins at the row or
// before it.
__device__ __forceinline__ int SliceOf(const device::StateSlices& sequences, int64_t row) {
  int low = 0, high = sequences.num_slices;
  while (low + 1 < high) {
    const int middle = (low + high) / 2;
    if (sequences.slices[middle].first_row <= row)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// Returns the input of row `row` of the slice; negative rows are in the tail.
__device__ __forceinline__ float InputOf(const device::ConvolveArgs& args,
                                         const device::StateSlice& slice, int64_t row,
                                         int64_t channel) {
  if (row < 0)
    return args.tails[slice.slot * args.stride + (row + args.width - 1) * args.channels + channel];
  const float* const numbers = args.x + (slice.first_row + row) * args.x_stride + channel;
  return args.is_gated ? numbers[0] * numbers[args.channels] : numbers[0];
}

__global__ void __launch_bounds__(kConvolveThreads, 8) ConvolveKernel(device::ConvolveArgs args) {
  const int64_t channel = int64_t{blockIdx.y} * kConvolveThreads + threadIdx.x, row = blockIdx.x;
  if (channel >= args.channels) return;
  const device::StateSlice slice = args.sequences.slices[SliceOf(args.sequences, row)];
  if (slice.slot < 0) return;
  float sum = args.bias == nullptr ? 0 : args.bias[channel];
  const int64_t own = row - slice.first_row;
  SLUICE_ROLLED
  for (int j = 0; j < args.width; ++j) {
    sum += args.weight[j * args.channels + channel] *
           InputOf(args, slice, own - (args.width - 1) + j, channel);
  }
  if (args.silu) sum *= Sigmoid(sum);
  const int64_t to = row * args.channels + channel;
  if (args.is_gated) {
    const float gate = args.x[row * args.x_stride + 2 * args.channels + channel];
    static_cast<uint16_t*>(args.out)[to] = FloatToBf16(sum * gate);
  } else {
    static_cast<float*>(args.out)[to] = sum;
  }
}

__global__ void __launch_bounds__(kConvolveThreads, 8)
    ConvolveTailsKernel(device::ConvolveArgs args) {
  const int64_t channel = int64_t{blockIdx.y} * kConvolveThreads + threadIdx.x;
  if (channel >= args.channels) return;
  const device::StateSlice slice = args.sequences.slices[blockIdx.x];
  if (slice.slot < 0) return;
  // Writes rows in ascending order. The slice's own tail is written last, so that no number is read
  // after it was overwritten.
  const auto write = [&](int32_t rows, int32_t slot) {
    float* const to = args.tails + slot * args.stride + channel;
    SLUICE_ROLLED
    for (int j = 0; j < args.width - 1; ++j)
      to[j * args.channels] = InputOf(args, slice, rows - (args.width - 1) + j, channel);
  };
  for (int i = 0; i < slice.num_kept; ++i) {
    const device::StateKept kept = args.sequences.kept[slice.first_kept + i];
    write(kept.rows, kept.slot);
  }
  write(slice.num_tokens, slice.slot);
}

}  // namespace

void LaunchConvolve(const StreamHandle& stream, const device::ConvolveArgs& args) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.grid_y = static_cast<unsigned>((args.channels + kConvolveThreads - 1) / kConvolveThreads);
  shape.threads = kConvolveThreads;
  Launch<ConvolveKernel>(stream, "convolve", shape, args);
  shape.grid_x = static_cast<unsigned>(args.sequences.num_slices);
  Launch<ConvolveTailsKernel>(stream, "convolve_tails", shape, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
