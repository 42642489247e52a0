#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/tail_rope.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kLatentThreads = 128;

// Writes the RMS norm of `count` numbers at `x`, with index 0 at out[to].
__device__ __forceinline__ void WriteNorm(const float* x, int count, const float* weight, float eps,
                                          bool wide, void* out, ElementType type, int64_t to,
                                          float scale) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  float squares = 0;
  for (int col = static_cast<int>(threadIdx.x) * kVector; col < count;
       col += static_cast<int>(kLatentThreads) * kVector) {
    float values[kVector];
    LoadVector(x, ElementType::kF32, col, VectorCount(col, count), wide, values);
    SLUICE_UNROLL
    for (const float value : values) squares += value * value;
  }
  const float mean = BlockSum(squares, shared) / static_cast<float>(count);
  const float factor = 1.0f / sqrtf(mean + eps);
  for (int col = static_cast<int>(threadIdx.x) * kVector; col < count;
       col += static_cast<int>(kLatentThreads) * kVector) {
    const int own = VectorCount(col, count);
    float values[kVector], weights[kVector];
    LoadVector(x, ElementType::kF32, col, own, wide, values);
    LoadVector(weight, ElementType::kF32, col, own, wide, weights);
    SLUICE_UNROLL
    for (int i = 0; i < kVector; ++i) values[i] = weights[i] * (values[i] * factor);
    StoreVector(out, type, to + col, own, wide, values, scale);
  }
}

// There are two blocks per row: one for the latent vector and the shared key, which go to the
// cache, and one for the vector of q.
__global__ void __launch_bounds__(kLatentThreads)
    LatentAppendKernel(RowsLaunch<device::LatentAppendArgs> launch) {
  const device::LatentAppendArgs& args = launch.args;
  const int64_t row = blockIdx.x;
  const float* const x = args.x + row * (args.latent_begin + args.latent_dim + args.rope.dim);
  if (blockIdx.y == 1) {
    WriteNorm(x, args.q_dim, args.q_norm, args.eps, launch.wide, args.q, ElementType::kBF16,
              row * args.q_dim, 1);
    return;
  }
  const device::KvArrays& cache = args.cache;
  const int64_t slot = args.slots[row];
  if (slot < 0) return;
  const int64_t to =
      (slot / cache.block_size * cache.block_rows + slot % cache.block_size) * cache.head_dim;
  WriteNorm(x + args.latent_begin, args.latent_dim, args.k_norm, args.eps, launch.wide, cache.k,
            cache.type, to, cache.k_scale);
  const float* const key = x + args.latent_begin + args.latent_dim;
  for (int pair = static_cast<int>(threadIdx.x); pair < args.rope.dim / 2;
       pair += static_cast<int>(kLatentThreads)) {
    const RotatedPair rotated = RotatePair(args.rope, row, key, pair);
    StoreNumber(cache.k, cache.type, to + args.latent_dim + rotated.first, rotated.a,
                cache.k_scale);
    StoreNumber(cache.k, cache.type, to + args.latent_dim + rotated.second, rotated.b,
                cache.k_scale);
  }
}

}  // namespace

void LaunchLatentAppend(const StreamHandle& stream, const device::LatentAppendArgs& given) {
  RowsLaunch<device::LatentAppendArgs> launch = {given, true};
  device::KvArrays& cache = launch.args.cache;
  if (cache.block_rows == 0) cache.block_rows = cache.block_size;
  const int64_t width = given.latent_begin + given.latent_dim + given.rope.dim;
  launch.wide = IsWide(given.x, width) && IsWide(given.k_norm, given.latent_begin) &&
                IsWide(cache.k, cache.head_dim) && given.latent_dim % kVector == 0 &&
                IsWide(given.q, given.q_dim) && IsWide(given.q_norm, given.q_dim);
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(given.rows);
  shape.grid_y = given.q_dim > 0 ? 2 : 1;
  shape.threads = kLatentThreads;
  shape.shared_bytes = 32 * sizeof(float);
  Launch<LatentAppendKernel>(stream, "latent_append", shape, launch);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
