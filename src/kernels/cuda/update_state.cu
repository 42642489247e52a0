// A thread block computes 32 columns of one head's state, for the tokens of one slice in order. The
// state is in registers: a warp has eight columns, and four lanes share a column, each with every
// fourth group of four keys. All warps prepare the keys, queries and gates of a few tokens at a
// time in shared memory.
#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr int kStateWarps = 4;
constexpr int kStateThreads = kStateWarps * 32;
constexpr int kStateLanes = 4;  // number of lanes that share a column
constexpr int kLaneColumns = 32 / kStateLanes;
constexpr int kStateColumns = kStateWarps * kLaneColumns;
constexpr int kStateTokens = 8;  // number of tokens that are prepared at a time

__device__ __forceinline__ float StateSoftplus(float x) {
  return x > 20 ? x : log1pf(expf(x));
}

// The layout of prepared data in shared memory, for states with `keys` padded keys: for each token
// q, k and, if keys have decays, the decays; the decay and the rate; and v of the block's columns.
struct Prepared {
  float* memory;
  int keys;
  bool decays_keys;

  __host__ __device__ static int Numbers(int keys, bool decays_keys) {
    return kStateTokens * ((decays_keys ? 3 : 2) * keys + 2 + kStateColumns);
  }
  __device__ float* Of(int token) const { return memory + token * ((decays_keys ? 3 : 2) * keys); }
  __device__ float* Q(int token) const { return Of(token); }
  __device__ float* K(int token) const { return Of(token) + keys; }
  __device__ float* Decays(int token) const { return Of(token) + 2 * keys; }
  __device__ float* Gates(int token) const {
    return memory + kStateTokens * ((decays_keys ? 3 : 2) * keys) + 2 * token;
  }
  __device__ float* Values(int token) const {
    return memory + kStateTokens * ((decays_keys ? 3 : 2) * keys + 2) + token * kStateColumns;
  }
};

// Called by all lanes of a warp. Writes one head of q or of k, padded with zeros, with the length
// that the delta rule requires.
__device__ __forceinline__ void PrepareKey(const device::UpdateStateArgs& args, const float* from,
                                           float factor, const Prepared& prepared, float* to) {
  constexpr float kEps = 1e-6f;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float scale = 1;
  if (args.corrects) {
    float squares = 0;
    for (int key = lane; key < args.key_dim; key += 32) squares += from[key] * from[key];
    scale = factor / sqrtf(WarpSum(squares) + kEps);
  }
  for (int key = lane; key < prepared.keys; key += 32)
    to[key] = key < args.key_dim ? from[key] * scale : 0.0f;
}

// Called by all lanes of a warp. Prepares one token for one head.
__device__ __forceinline__ void PrepareToken(const device::UpdateStateArgs& args, int64_t row,
                                             int head, const Prepared& prepared, int token) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int key_head = head / (args.heads / args.key_heads);
  const float* const q = args.x + row * args.x_stride + int64_t{key_head} * args.key_dim;
  const float* const k = q + int64_t{args.key_heads} * args.key_dim;
  PrepareKey(args, q, 1.0f / sqrtf(static_cast<float>(args.key_dim)), prepared, prepared.Q(token));
  PrepareKey(args, k, 1, prepared, prepared.K(token));
  const float* const steps = args.steps + row * args.steps_stride;
  const float rate = expf(args.a_log[head]);
  if (args.decays_keys) {
    const float* const inputs = args.decays + row * args.decays_stride;
    for (int key = lane; key < prepared.keys; key += 32) {
      float decay = 0;
      if (key < args.key_dim) {
        const int64_t at = int64_t{head} * args.key_dim + key;
        const float x = inputs[at] + args.step_bias[at];
        decay = expf(args.decay_bound != 0 ? args.decay_bound * Sigmoid(rate * x)
                                           : -rate * StateSoftplus(x));
      }
      prepared.Decays(token)[key] = decay;
    }
  }
  if (lane != 0) return;
  float* const gates = prepared.Gates(token);
  if (args.corrects) {
    gates[0] = args.decays_keys
                   ? 0.0f
                   : expf(-rate * StateSoftplus(steps[args.heads + head] + args.step_bias[head]));
    gates[1] = args.rate_scale * Sigmoid(steps[head]);
    return;
  }
  float step = StateSoftplus(steps[head] * args.step_factor + args.step_bias[head]);
  if (step < args.least_step) step = args.least_step;
  if (args.most_step > 0 && args.most_step < step) step = args.most_step;
  gates[0] = expf(-rate * step);
  gates[1] = step;
}

struct Four {
  float of[4];
};
__device__ __forceinline__ Four LoadFour(const float* from) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  return {{four.x, four.y, four.z, four.w}};
}

// Returns, to each of the lanes that share a column, the sum of their values.
__device__ __forceinline__ float ColumnSum(float value) {
  value += __shfl_xor_sync(0xFFFFFFFFu, value, kLaneColumns);
  return value + __shfl_xor_sync(0xFFFFFFFFu, value, 2 * kLaneColumns);
}

// kKeys: number of keys per lane, a multiple of 4. kDecaysKeys: UpdateStateArgs::decays_keys.
template <int kKeys, bool kDecaysKeys>
__global__ void __launch_bounds__(kStateThreads, kKeys > 32 && kDecaysKeys ? 2 : 3)
    UpdateStateKernel(device::UpdateStateArgs args) {
  const device::StateSlice slice = args.sequences.slices[blockIdx.z];
  if (slice.slot < 0) return;
  const int head = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int part = lane / kLaneColumns;
  const int block_column = warp * kLaneColumns + lane % kLaneColumns;
  const int column = static_cast<int>(blockIdx.x) * kStateColumns + block_column;
  const bool is_column = column < args.head_dim;
  // Key i of this lane. Groups of four keys are assigned to the lanes in turn.
  const auto key_of = [&](int i) { return (i / 4 * kStateLanes + part) * 4 + i % 4; };
  const int64_t matrix = int64_t{head} * args.key_dim * args.head_dim + column;
  float state[kKeys];
  const float* const from = args.states + slice.slot * args.stride + matrix;
  SLUICE_UNROLL
  for (int i = 0; i < kKeys; ++i) {
    state[i] =
        is_column && key_of(i) < args.key_dim ? from[int64_t{key_of(i)} * args.head_dim] : 0.0f;
  }
  const auto keep = [&](int32_t slot) {
    float* const to = args.states + slot * args.stride + matrix;
    // Computed in the loop over tokens, because there are not enough registers for so many
    // addresses.
    const int dim = KeptInLoop(args.head_dim);
    SLUICE_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      if (is_column && key_of(i) < args.key_dim) to[int64_t{key_of(i)} * dim] = state[i];
    }
  };
  const Prepared prepared{reinterpret_cast<float*>(SharedMemory()), kKeys * kStateLanes,
                          kDecaysKeys};
  const float skip = args.skip == nullptr ? 0 : args.skip[head];
  float* const values =
      args.x + 2 * int64_t{args.key_heads} * args.key_dim + int64_t{head} * args.head_dim + column;
  int next_kept = 0;
  for (int first = 0; first < slice.num_tokens; first += kStateTokens) {
    const int count = min(kStateTokens, slice.num_tokens - first);
    for (int token = warp; token < count; token += kStateWarps)
      PrepareToken(args, slice.first_row + first + token, head, prepared, token);
    // Each lane of a column reads the value of every fourth token.
    for (int token = part; token < count; token += kStateLanes) {
      prepared.Values(token)[block_column] =
          is_column ? values[(slice.first_row + first + token) * args.x_stride] : 0.0f;
    }
    __syncthreads();
    SLUICE_ROLLED
    for (int token = 0; token < count; ++token) {
      const float* const q = prepared.Q(token);
      const float* const k = prepared.K(token);
      const float* const decays = prepared.Decays(token);
      const float decay = prepared.Gates(token)[0], rate = prepared.Gates(token)[1];
      float known = 0;
      if (args.corrects) {
        SLUICE_UNROLL
        for (int i = 0; i < kKeys; i += 4) {
          const Four keys = LoadFour(k + key_of(i));
          Four kept = {{1, 1, 1, 1}};
          if constexpr (kDecaysKeys) kept = LoadFour(decays + key_of(i));
          SLUICE_UNROLL
          for (int n = 0; n < 4; ++n) known += state[i + n] * (kept.of[n] * keys.of[n]);
        }
        known = ColumnSum(known);
        if constexpr (!kDecaysKeys) known *= decay;
      }
      const float given = prepared.Values(token)[block_column];
      const float write = rate * (given - known);
      float sum = 0;
      SLUICE_UNROLL
      for (int i = 0; i < kKeys; i += 4) {
        const Four keys = LoadFour(k + key_of(i)), queries = LoadFour(q + key_of(i));
        Four kept = {{decay, decay, decay, decay}};
        if constexpr (kDecaysKeys) kept = LoadFour(decays + key_of(i));
        SLUICE_UNROLL
        for (int n = 0; n < 4; ++n) {
          state[i + n] = kept.of[n] * state[i + n] + keys.of[n] * write;
          sum += queries.of[n] * state[i + n];
        }
      }
      sum = ColumnSum(sum) + skip * given;
      if (part == 0 && is_column) values[(slice.first_row + first + token) * args.x_stride] = sum;
      const int done = first + token + 1;
      for (; next_kept < slice.num_kept; ++next_kept) {
        const device::StateKept kept = args.sequences.kept[slice.first_kept + next_kept];
        if (kept.rows != done) break;
        keep(kept.slot);
      }
    }
    __syncthreads();  // waits until no thread reads the prepared numbers
  }
  keep(slice.slot);
}

template <int kKeys, bool kDecaysKeys>
void LaunchKeys(const StreamHandle& stream, const device::UpdateStateArgs& args) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((args.head_dim + kStateColumns - 1) / kStateColumns);
  shape.grid_y = static_cast<unsigned>(args.heads);
  shape.grid_z = static_cast<unsigned>(args.sequences.num_slices);
  shape.threads = kStateThreads;
  shape.shared_bytes = static_cast<unsigned>(Prepared::Numbers(kKeys * kStateLanes, kDecaysKeys) *
                                             static_cast<int>(sizeof(float)));
  Launch<UpdateStateKernel<kKeys, kDecaysKeys>>(stream, "update_state", shape, args);
}

template <bool kDecaysKeys>
void LaunchAny(const StreamHandle& stream, const device::UpdateStateArgs& args) {
  if (args.key_dim <= 16 * kStateLanes)
    LaunchKeys<16, kDecaysKeys>(stream, args);
  else if (args.key_dim <= 32 * kStateLanes)
    LaunchKeys<32, kDecaysKeys>(stream, args);
  else
    LaunchKeys<device::kMostStateKeys / kStateLanes, kDecaysKeys>(stream, args);
}

}  // namespace

void LaunchUpdateState(const StreamHandle& stream, const device::UpdateStateArgs& args) {
  if (args.decays_keys)
    LaunchAny<true>(stream, args);
  else
    LaunchAny<false>(stream, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
