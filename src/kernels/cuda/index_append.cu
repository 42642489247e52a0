#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/tail_rope.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr int kIndexThreads = 128;
constexpr int kPairsPerThread = 4;  // pairs of query elements per thread

// Calls visit(index, number) for the two numbers of a pair of a head, after its rotation. Pairs
// after the rotated ones consist of adjacent numbers.
template <typename Visit>
__device__ __forceinline__ void VisitPair(const device::TailRope& rope, int64_t row, const float* x,
                                          int pair, const Visit& visit) {
  if (pair < rope.dim / 2) {
    const RotatedPair rotated = RotatePair(rope, row, x, pair);
    visit(rotated.first, rotated.a);
    visit(rotated.second, rotated.b);
    return;
  }
  visit(2 * pair, x[2 * pair]);
  visit(2 * pair + 1, x[2 * pair + 1]);
}

// Norms, rotates and stores the key of a row.
__device__ __forceinline__ void AppendKey(const device::IndexAppendArgs& args, int64_t row) {
  auto* const shared = reinterpret_cast<float*>(SharedMemory());
  float* const normed = shared + 64;  // [dim], stored after the numbers of two sums
  const float* const k = args.k + row * args.dim;
  const auto thread = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int i = thread; i < args.dim; i += kIndexThreads) sum += k[i];
  const float mean = BlockSum(sum, shared) / static_cast<float>(args.dim);
  float squares = 0;
  for (int i = thread; i < args.dim; i += kIndexThreads) {
    const float difference = k[i] - mean;
    squares += difference * difference;
  }
  const float variance = BlockSum(squares, shared + 32) / static_cast<float>(args.dim);
  const float factor = 1.0f / sqrtf(variance + args.eps);
  for (int i = thread; i < args.dim; i += kIndexThreads)
    normed[i] = (k[i] - mean) * factor * args.k_norm[i] + args.k_bias[i];
  __syncthreads();
  const int64_t slot = args.slots[row];
  if (slot < 0) return;
  for (int pair = thread; pair < args.dim / 2; pair += kIndexThreads) {
    VisitPair(args.rope, row, normed, pair, [&](int index, float value) {
      StoreNumber(args.keys, args.type, slot * args.dim + index, value, args.k_scale);
    });
  }
}

// The first block of a row stores the row's key; the other blocks process its queries.
__global__ void __launch_bounds__(kIndexThreads) IndexAppendKernel(device::IndexAppendArgs args) {
  const int64_t row = blockIdx.x;
  if (blockIdx.y == 0) {
    AppendKey(args, row);
    return;
  }
  const int pairs = args.dim / 2;
  const int first = (static_cast<int>(blockIdx.y) - 1) * kIndexThreads * kPairsPerThread +
                    static_cast<int>(threadIdx.x);
  for (int i = 0; i < kPairsPerThread; ++i) {
    const int task = first + i * kIndexThreads;
    if (task >= args.heads * pairs) return;
    const int64_t head = (row * args.heads + task / pairs) * args.dim;
    VisitPair(args.rope, row, args.q + head, task % pairs,
              [&](int index, float value) { args.q_out[head + index] = FloatToBf16(value); });
  }
}

}  // namespace

void LaunchIndexAppend(const StreamHandle& stream, const device::IndexAppendArgs& args) {
  constexpr int kPairs = kIndexThreads * kPairsPerThread;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.grid_y = static_cast<unsigned>(1 + (args.heads * (args.dim / 2) + kPairs - 1) / kPairs);
  shape.threads = kIndexThreads;
  shape.shared_bytes = static_cast<unsigned>((64 + args.dim) * sizeof(float));
  Launch<IndexAppendKernel>(stream, "index_append", shape, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
