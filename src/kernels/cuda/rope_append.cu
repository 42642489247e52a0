// A warp for each head of each row. A lane holds four numbers of a head at a time, two pairs that
// rope turns: of rope in halves (i, i + 1) and (i + d/2, i + 1 + d/2), interleaved (2i .. 2i + 3).
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kRopeWarps = 4;
constexpr int kRoundDim = 128;  // of 32 lanes with four numbers

struct Four {
  float a0, a1;  // at `first` and after it
  float b0, b1;  // at `second` and after it
};

__device__ __forceinline__ float2 LoadTwo(const void* x, ElementType type, int64_t index) {
  if (type == ElementType::kF32)
    return *reinterpret_cast<const float2*>(static_cast<const float*>(x) + index);
  const uint32_t pair = *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(x) + index);
  return make_float2(FloatFromBits(pair << 16), FloatFromBits(pair & 0xFFFF0000u));
}

__device__ __forceinline__ void StoreTwo(void* out, ElementType type, int64_t index, float a,
                                         float b, float scale) {
  if (type == ElementType::kF8E4M3) {
    *reinterpret_cast<uint16_t*>(static_cast<uint8_t*>(out) + index) =
        static_cast<uint16_t>(PackE4m3(a / scale, b / scale));
  } else {
    *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(out) + index) = PackBf16(a, b);
  }
}

__device__ __forceinline__ void Rotate(float& a, float& b, float cosine, float sine) {
  const float rotated = a * cosine - b * sine;
  b = a * sine + b * cosine;
  a = rotated;
}

// Heads that have a warp: of q and, where the row has its own, of k and v.
__host__ __device__ __forceinline__ int HeadsOfRow(const device::RopeAppendArgs& args) {
  return args.num_heads + (args.kv == device::RowKv::kNone ? 0 : 2 * args.cache.num_kv_heads);
}

// Heads of up to kRounds * kRoundDim numbers.
template <int kRounds>
__global__ void __launch_bounds__(kRopeWarps * 32) RopeAppendKernel(device::RopeAppendArgs args) {
  const int dim = args.cache.head_dim, num_kv_heads = args.cache.num_kv_heads;
  const int heads = HeadsOfRow(args);
  const int64_t task = int64_t{blockIdx.x} * kRopeWarps + threadIdx.x / 32;
  if (task >= args.rows * heads) return;
  const int64_t row = task / heads;
  const int head = static_cast<int>(task % heads);
  const bool is_q = head < args.num_heads;
  const bool is_v = head >= args.num_heads + num_kv_heads;
  // Where the head was projected to.
  const bool is_key_too = is_v && args.kv == device::RowKv::kKeys;
  const int64_t row_heads = args.kv == device::RowKv::kKeys ? heads - num_kv_heads : heads;
  const int64_t source = (row * row_heads + head - (is_key_too ? num_kv_heads : 0)) * dim;
  const int lane = static_cast<int>(threadIdx.x % 32);
  // The lane's numbers in round r: first + r * stride and second + r * stride, each with its
  // successor.
  const int first = args.interleaved ? 4 * lane : 2 * lane;
  const int second = args.interleaved ? first + 2 : first + dim / 2;
  const int stride = args.interleaved ? 128 : 64;

  Four x[kRounds];
  float squares = 0;
  SLUICE_UNROLL
  for (int r = 0; r < kRounds; ++r) {
    x[r] = {0, 0, 0, 0};
    if (lane + 32 * r >= dim / 4) continue;
    const int64_t from = source + r * stride;
    const float2 a = LoadTwo(args.qkv, args.qkv_type, from + first);
    const float2 b = LoadTwo(args.qkv, args.qkv_type, from + second);
    x[r] = {a.x, a.y, b.x, b.y};
    squares += a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y;
  }
  const float* norm = is_v ? nullptr : is_q ? args.q_norm : args.k_norm;
  if (is_v && args.norms_values) {
    const float factor = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(dim) + args.eps);
    SLUICE_UNROLL
    for (Four& four : x)
      four = {four.a0 * factor, four.a1 * factor, four.b0 * factor, four.b1 * factor};
  }
  if (norm != nullptr) {
    const float factor = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(dim) + args.eps);
    SLUICE_UNROLL
    for (int r = 0; r < kRounds; ++r) {
      if (lane + 32 * r >= dim / 4) continue;
      const float* a = norm + first + r * stride;
      const float* b = norm + second + r * stride;
      x[r] = {a[0] * (x[r].a0 * factor), a[1] * (x[r].a1 * factor), b[0] * (x[r].b0 * factor),
              b[1] * (x[r].b1 * factor)};
    }
  }
  if (args.rope && !is_v) {
    SLUICE_UNROLL
    for (int r = 0; r < kRounds; ++r) {
      if (lane + 32 * r >= dim / 4) continue;
      const float* cosines = args.cos_sin + row * dim + 2 * (lane + 32 * r);
      const float* sines = cosines + dim / 2;
      if (args.interleaved) {
        Rotate(x[r].a0, x[r].a1, cosines[0], sines[0]);
        Rotate(x[r].b0, x[r].b1, cosines[1], sines[1]);
      } else {
        Rotate(x[r].a0, x[r].b0, cosines[0], sines[0]);
        Rotate(x[r].a1, x[r].b1, cosines[1], sines[1]);
      }
    }
  }
  float factor = 1;
  if (args.norms_after_rope && !is_v) {
    float rotated_squares = 0;
    SLUICE_UNROLL
    for (const Four& four : x) {
      rotated_squares +=
          four.a0 * four.a0 + four.a1 * four.a1 + four.b0 * four.b0 + four.b1 * four.b1;
    }
    factor = 1.0f / sqrtf(WarpSum(rotated_squares) / static_cast<float>(dim) + args.eps);
  }
  float temperature = 1;
  if (is_q && args.temperature_floor > 0) {
    const auto position = static_cast<float>(args.positions[row]);
    temperature =
        log1pf(floorf((position + 1.0f) / args.temperature_floor)) * args.temperature_scale + 1.0f;
  }

  void* out = args.q;
  ElementType type = ElementType::kBF16;
  float scale = 1;
  int64_t to = (row * args.num_heads + head) * dim;
  if (!is_q) {
    const int64_t slot = args.slots[row], block = slot / args.cache.block_size;
    if (slot < 0) return;
    const int kv_head = head - args.num_heads - (is_v ? num_kv_heads : 0);
    out = is_v ? args.cache.v : args.cache.k;
    type = args.cache.type;
    scale = is_v ? args.cache.v_scale : args.cache.k_scale;
    to = (block * args.cache.block_rows + kv_head * args.cache.block_size +
          slot % args.cache.block_size) *
         dim;
  }
  SLUICE_UNROLL
  for (int r = 0; r < kRounds; ++r) {
    if (lane + 32 * r >= dim / 4) continue;
    const Four& four = x[r];
    StoreTwo(out, type, to + r * stride + first, four.a0 * factor * temperature,
             four.a1 * factor * temperature, scale);
    StoreTwo(out, type, to + r * stride + second, four.b0 * factor * temperature,
             four.b1 * factor * temperature, scale);
  }
}

}  // namespace

void LaunchRopeAppend(const StreamHandle& stream, const device::RopeAppendArgs& given) {
  device::RopeAppendArgs args = given;
  device::KvArrays& cache = args.cache;
  if (cache.block_rows == 0) cache.block_rows = cache.num_kv_heads * cache.block_size;
  const int64_t tasks = args.rows * HeadsOfRow(args);
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((tasks + kRopeWarps - 1) / kRopeWarps);
  shape.threads = kRopeWarps * 32;
  if (cache.head_dim <= 2 * kRoundDim)
    Launch<RopeAppendKernel<2>>(stream, "rope_append", shape, args);
  else
    Launch<RopeAppendKernel<4>>(stream, "rope_append", shape, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
