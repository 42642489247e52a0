// Rotates q and k, and appends k and v to the KV cache. Several lanes of a warp process each head
// of each row. A lane holds 16 elements of the head in two vectors, so that it has both elements of
// each rotated pair. With RoPE in halves, the lane holds 8 consecutive elements of the first half
// and the 8 elements of the second half that they are paired with. With interleaved RoPE, it holds
// 16 consecutive elements. If RoPE rotates only a part of the head, further lanes hold the
// remaining elements with the same layout.
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kRopeThreads = 128;
constexpr int kLaneNumbers = 2 * kVector;
constexpr int kFours = kLaneNumbers / 4;

// The elements that one lane holds.
struct Numbers {
  float first[kVector];
  float second[kVector];
};

// Calls of(i, a0, a1, b0, b1) for each group of four elements, which form two pairs: with RoPE in
// halves (a0, b0) and (a1, b1); with interleaved RoPE (a0, a1) and (b0, b1).
template <typename Of>
__device__ __forceinline__ void ForFours(Numbers& x, bool interleaved, const Of& of) {
  if (interleaved) {
    SLUICE_UNROLL
    for (int i = 0; i < kFours; ++i) {
      float* four = (i < kFours / 2 ? x.first : x.second) + 4 * i % kVector;
      of(i, four[0], four[1], four[2], four[3]);
    }
  } else {
    SLUICE_UNROLL
    for (int i = 0; i < kFours; ++i)
      of(i, x.first[2 * i], x.first[2 * i + 1], x.second[2 * i], x.second[2 * i + 1]);
  }
}

__device__ __forceinline__ void Rotate(float& a, float& b, float cosine, float sine) {
  const float rotated = a * cosine - b * sine;
  b = a * sine + b * cosine;
  a = rotated;
}

// Called by all lanes of a warp; the lanes of each head compute separately. Returns the mean of the
// squares of a head's elements.
template <int kLanes>
__device__ __forceinline__ float MeanSquare(Numbers& x, bool interleaved, int dim) {
  float squares[kFours];
  ForFours(x, interleaved, [&](int i, float a0, float a1, float b0, float b1) {
    squares[i] = a0 * a0 + a1 * a1 + b0 * b0 + b1 * b1;
  });
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    SLUICE_UNROLL
    for (float& sum : squares) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, mask);
  }
  return ((squares[0] + squares[2]) + (squares[1] + squares[3])) / static_cast<float>(dim);
}

// Called by all lanes of a warp; the lanes of each head compute separately. Returns the mean of the
// squares of all elements of the row's heads, given the sum of squares of each head.
template <int kLanes>
__device__ __forceinline__ float WholeMeanSquare(const float* squares, int64_t row, int heads,
                                                 int dim) {
  float sum = 0;
  SLUICE_ROLLED
  for (int head = static_cast<int>(threadIdx.x % kLanes); head < heads; head += kLanes)
    sum += squares[row * heads + head];
  for (int mask = kLanes / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, mask);
  return sum / static_cast<float>(heads * dim);
}

__host__ __device__ __forceinline__ int VectorsOf(int count) {
  return (count + kVector - 1) / kVector;
}

// Returns the number of heads of q and, if the row has keys and values, of k and v.
__host__ __device__ __forceinline__ int HeadsOfRow(const device::RopeAppendArgs& args) {
  return args.num_heads + (args.kv == device::RowKv::kNone ? 0 : 2 * args.cache.num_kv_heads);
}

// Used for heads of at most kLanes * kLaneNumbers numbers.
template <int kLanes>
__global__ void __launch_bounds__(kRopeThreads)
    RopeAppendKernel(RowsLaunch<device::RopeAppendArgs> launch) {
  BeginOverlapping();
  const device::RopeAppendArgs& args = launch.args;
  const int dim = args.cache.head_dim, num_kv_heads = args.cache.num_kv_heads;
  const int heads = HeadsOfRow(args);
  const int64_t tasks = args.rows * heads;
  const int64_t own_task = int64_t{blockIdx.x} * (kRopeThreads / kLanes) + threadIdx.x / kLanes;
  // Lanes without a head repeat the last one, because the warp's sums need them, but write nothing.
  const int64_t task = min(own_task, tasks - 1);
  const int64_t row = task / heads;
  const int head = static_cast<int>(task % heads);
  const bool is_q = head < args.num_heads;
  const bool is_v = head >= args.num_heads + num_kv_heads;
  // Location of the head's projection.
  const bool is_key_too = is_v && args.kv == device::RowKv::kKeys;
  const int64_t row_heads =
      args.gate_heads + (args.kv == device::RowKv::kKeys ? heads - num_kv_heads : heads);
  const int64_t source =
      (row * row_heads + args.gate_heads + head - (is_key_too ? num_kv_heads : 0)) * dim;

  const int lane = static_cast<int>(threadIdx.x % kLanes);
  const int pairs = args.rotary_dim / 2;  // pairs that rope rotates
  int first = kLaneNumbers * lane, second = first + kVector;
  // Number of elements in each of the lane's vectors.
  int first_count = VectorCount(first, dim), second_count = VectorCount(second, dim);
  if (!args.interleaved) {
    const int lanes = VectorsOf(pairs);  // lanes that hold the pairs
    const bool is_rest = lane >= lanes;
    const int at = kVector * (is_rest ? lane - lanes : lane);
    const int half = is_rest ? dim / 2 - pairs : pairs;
    first = is_rest ? 2 * pairs + at : at;
    second = first + half;
    first_count = second_count = VectorCount(at, half);
  }
  const auto for_vectors = [&](Numbers& numbers, const auto& of) {
    of(first, first_count, numbers.first);
    of(second, second_count, numbers.second);
  };

  Numbers x;
  for_vectors(x, [&](int at, int count, float(&values)[kVector]) {
    LoadVector(args.qkv, args.qkv_type, source + at, count, launch.wide, values);
  });
  if (args.q_norm != nullptr || args.k_norm != nullptr || args.norms_values) {
    const float* norm = is_v ? nullptr : is_q ? args.q_norm : args.k_norm;
    float mean;
    if (args.q_squares == nullptr) {
      mean = MeanSquare<kLanes>(x, args.interleaved, dim);
    } else {
      // A warp may have heads of q and of k, so one call computes both.
      mean = WholeMeanSquare<kLanes>(is_q ? args.q_squares : args.k_squares, row,
                                     is_q ? args.square_heads : args.square_kv_heads, dim);
      if (norm != nullptr) norm += (is_q ? head : head - args.num_heads) * dim;
    }
    const float factor = 1.0f / sqrtf(mean + args.eps);
    for_vectors(x, [&](int at, int count, float(&values)[kVector]) {
      if (norm != nullptr) {
        float weights[kVector];
        LoadVector(norm, ElementType::kF32, at, count, launch.wide, weights);
        SLUICE_UNROLL
        for (int i = 0; i < kVector; ++i) values[i] = weights[i] * (values[i] * factor);
      } else if (is_v && args.norms_values) {
        SLUICE_UNROLL
        for (float& value : values) value *= factor;
      }
    });
  }
  if (args.rope && !is_v) {
    const int64_t from = row * args.rotary_dim + kVector * lane;
    const int count = VectorCount(kVector * lane, pairs);
    float cosines[kVector], sines[kVector];
    LoadVector(args.cos_sin, ElementType::kF32, from, count, launch.wide, cosines);
    LoadVector(args.cos_sin, ElementType::kF32, from + pairs, count, launch.wide, sines);
    SLUICE_UNROLL
    for (int i = 0; i < kVector; ++i) cosines[i] = i < count ? cosines[i] : 1.0f;
    ForFours(x, args.interleaved, [&](int i, float& a0, float& a1, float& b0, float& b1) {
      const int low = 2 * i, high = 2 * i + 1;
      Rotate(a0, args.interleaved ? a1 : b0, cosines[low], sines[low]);
      Rotate(args.interleaved ? b0 : a1, b1, cosines[high], sines[high]);
    });
  }
  float factor = 1;
  if (args.norms_after_rope) {
    const float after_rope = 1.0f / sqrtf(MeanSquare<kLanes>(x, args.interleaved, dim) + args.eps);
    if (!is_v) factor = after_rope;
  }
  float temperature = 1;
  if (is_q && args.temperature_floor > 0) {
    const auto position = static_cast<float>(args.positions[row]);
    temperature = log1pf(floorf((position + static_cast<float>(args.temperature_first)) /
                                args.temperature_floor)) *
                      args.temperature_scale +
                  1.0f;
  }

  if (own_task >= tasks) return;
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
  for_vectors(x, [&](int at, int count, float(&values)[kVector]) {
    SLUICE_UNROLL
    for (float& value : values) value = value * factor * temperature;
    StoreVector(out, type, to + at, count, launch.wide, values, scale);
  });
}

template <int kLanes>
void LaunchHeads(const StreamHandle& stream, const RowsLaunch<device::RopeAppendArgs>& launch) {
  constexpr int64_t kBlockHeads = kRopeThreads / kLanes;
  const int64_t tasks = launch.args.rows * HeadsOfRow(launch.args);
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((tasks + kBlockHeads - 1) / kBlockHeads);
  shape.threads = kRopeThreads;
  Launch<RopeAppendKernel<kLanes>>(stream, "rope_append", Overlapping(shape), launch);
}

}  // namespace

void LaunchRopeAppend(const StreamHandle& stream, const device::RopeAppendArgs& given) {
  RowsLaunch<device::RopeAppendArgs> launch = {given, true};
  device::KvArrays& cache = launch.args.cache;
  int& rotary_dim = launch.args.rotary_dim;
  if (rotary_dim == 0) rotary_dim = cache.head_dim;
  if (cache.block_rows == 0) cache.block_rows = cache.num_kv_heads * cache.block_size;
  const void* const arrays[] = {given.qkv,     given.q,      given.cache.k, given.cache.v,
                                given.cos_sin, given.q_norm, given.k_norm};
  // Halves also begin at multiples of a vector.
  const int half = cache.head_dim / 2, pairs = rotary_dim / 2;
  for (const void* array : arrays)
    launch.wide = launch.wide && IsWide(array, pairs) && IsWide(array, half - pairs);
  const int lanes =
      given.interleaved ? VectorsOf(half) : VectorsOf(pairs) + VectorsOf(half - pairs);
  if (lanes <= 8)
    LaunchHeads<8>(stream, launch);
  else if (lanes <= 16)
    LaunchHeads<16>(stream, launch);
  else
    LaunchHeads<32>(stream, launch);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
