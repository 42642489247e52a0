// Computes the logits of all experts, then chooses among them. These are two launches; either may
// be omitted.
#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/ordered_key.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr int kRows = 8;           // number of rows that share a read of the weights
constexpr unsigned kExperts = 8;   // experts per block, one per warp
constexpr unsigned kChoosers = 4;  // rows per block of the choice, one per warp
constexpr float kNoBias = -0.0f;   // adding it changes no sum

// Lane l sums the products of vectors l, l + 32, ... in order; then the lanes' sums are added.
__global__ void __launch_bounds__(kExperts * 32)
    RouterLogitsKernel(RowsLaunch<device::RouterArgs> launch) {
  const device::RouterArgs& args = launch.args;
  const int64_t expert = int64_t{blockIdx.y} * kExperts + threadIdx.x / 32;
  if (expert >= args.num_experts) return;
  const int64_t first_row = int64_t{blockIdx.x} * kRows;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const float bias = args.bias != nullptr ? args.bias[expert] : kNoBias;
  float sums[kRows] = {};
  for (int64_t col = int64_t{lane} * kVector; col < args.k; col += 32 * kVector) {
    const int count = VectorCount(col, args.k);
    float weight[kVector];
    LoadVector(args.weight, ElementType::kBF16, expert * args.k + col, count, launch.wide, weight);
    SLUICE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (first_row + r >= args.rows) continue;
      float x[kVector];
      LoadVector(args.x, ElementType::kF32, (first_row + r) * args.k + col, count, launch.wide, x);
      SLUICE_UNROLL
      for (int i = 0; i < kVector; ++i) sums[r] += x[i] * weight[i];
    }
  }
  SLUICE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const float sum = WarpSum(sums[r]);
    if (lane == 0 && first_row + r < args.rows)
      args.logits[(first_row + r) * args.num_experts + expert] = sum + bias;
  }
}

// Called by all lanes of a warp. Returns the largest key of all lanes.
__device__ __forceinline__ uint64_t WarpMaxKey(uint64_t key) {
  for (int mask = 16; mask > 0; mask >>= 1) {
    const uint64_t other = __shfl_xor_sync(0xFFFFFFFFu, key, mask);
    key = other > key ? other : key;
  }
  return key;
}

// The groups of experts among which experts are chosen, with a bit for each group.
struct KeptGroups {
  uint32_t bits = 1;
  int64_t size = 0;  // experts of a group

  __device__ bool Has(int64_t expert) const { return bits >> (expert / size) & 1u; }
};

// Called by all lanes of a warp. Returns the largest key below `limit`.
__device__ __forceinline__ uint64_t NextBest(const float* scores, int64_t num_experts,
                                             const KeptGroups& groups, uint64_t limit) {
  uint64_t best = 0;
  for (int64_t expert = threadIdx.x % 32; expert < num_experts; expert += 32) {
    const uint64_t key = OrderedKey(scores[expert], expert);
    if (key < limit && key > best && groups.Has(expert)) best = key;
  }
  return WarpMaxKey(best);
}

// Called by all lanes of a warp. Keeps the groups with the largest sums of their best scores. Each
// lane handles one group.
__device__ __forceinline__ KeptGroups KeepGroups(const device::RouterArgs& args,
                                                 const float* scores) {
  KeptGroups groups;
  groups.size = args.num_experts;
  if (args.kept_groups >= args.num_groups) return groups;
  groups.size = args.num_experts / args.num_groups;
  groups.bits = 0;
  const auto lane = static_cast<int64_t>(threadIdx.x % 32);
  uint64_t key = 0;
  if (lane < args.num_groups) {
    uint64_t best = 0, second = 0;
    for (int64_t expert = lane * groups.size; expert < (lane + 1) * groups.size; ++expert) {
      const uint64_t own = OrderedKey(scores[expert], expert);
      second = own > best ? best : own > second ? own : second;
      best = own > best ? own : best;
    }
    float sum = scores[IndexOfKey(best)];
    if (args.group_best == 2) sum += scores[IndexOfKey(second)];
    key = OrderedKey(sum, lane);
  }
  for (int i = 0; i < args.kept_groups; ++i) {
    const uint64_t best = WarpMaxKey(key);
    groups.bits |= 1u << IndexOfKey(best);
    if (key == best) key = 0;
  }
  return groups;
}

__global__ void __launch_bounds__(kChoosers * 32) RouterChoiceKernel(device::RouterArgs args) {
  const int64_t row = int64_t{blockIdx.x} * kChoosers + threadIdx.x / 32;
  if (row >= args.rows) return;
  const float* logits = args.logits + row * args.num_experts;
  int32_t* chosen = args.chosen + row * args.top_k;
  float* weights = args.expert_weights + row * args.top_k;
  const unsigned lane = threadIdx.x % 32;
  // The scores by which experts are chosen.
  float* const scores =
      reinterpret_cast<float*>(SharedMemory()) + threadIdx.x / 32 * args.num_experts;
  float largest = 0, sum = 1;
  if (!args.sigmoid) {
    KeptGroups all;
    all.size = args.num_experts;
    largest = logits[IndexOfKey(NextBest(logits, args.num_experts, all, ~uint64_t{0}))];
    sum = 0;
    for (int64_t expert = lane; expert < args.num_experts; expert += 32)
      sum += expf(logits[expert] - largest);
    sum = WarpSum(sum);
  }
  const bool has_scores = args.choice_bias != nullptr || args.kept_groups < args.num_groups;
  for (int64_t expert = lane; expert < args.num_experts; expert += 32) {
    float score = logits[expert];
    if (has_scores && !args.chooses_by_logits)
      score = args.sigmoid ? Sigmoid(score) : expf(score - largest) / sum;
    scores[expert] = args.choice_bias == nullptr ? score : score + args.choice_bias[expert];
  }
  __syncwarp();
  const KeptGroups groups = KeepGroups(args, scores);
  uint64_t key = ~uint64_t{0};
  for (int slot = 0; slot < args.top_k; ++slot) {
    key = NextBest(scores, args.num_experts, groups, key);
    if (lane == 0) chosen[slot] = IndexOfKey(key);
  }
  if (lane != 0) return;
  float total = 0;
  for (int slot = 0; slot < args.top_k; ++slot) {
    const float logit = logits[chosen[slot]];
    const float weight = args.sigmoid ? Sigmoid(logit) : expf(logit - largest) / sum;
    weights[slot] = weight;
    total += weight;
  }
  for (int slot = 0; slot < args.top_k; ++slot) {
    float weight = weights[slot];
    if (args.normalize) weight /= total;
    weight *= args.scale;
    if (args.expert_factors != nullptr) weight *= args.expert_factors[chosen[slot]];
    weights[slot] = weight;
  }
}

}  // namespace

void LaunchRouter(const StreamHandle& stream, const device::RouterArgs& args) {
  const bool wide = IsWide(args.x, args.k) && IsWide(args.weight, args.k);
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((args.rows + kRows - 1) / kRows);
  shape.grid_y = static_cast<unsigned>((args.num_experts + kExperts - 1) / kExperts);
  shape.threads = kExperts * 32;
  if (args.weight != nullptr) {
    Launch<RouterLogitsKernel>(stream, "router_logits", shape,
                               RowsLaunch<device::RouterArgs>{args, wide});
  }
  if (args.top_k == 0) return;
  LaunchShape choice;
  choice.grid_x = static_cast<unsigned>((args.rows + kChoosers - 1) / kChoosers);
  choice.threads = kChoosers * 32;
  choice.shared_bytes = static_cast<unsigned>(kChoosers * args.num_experts * sizeof(float));
  Launch<RouterChoiceKernel>(stream, "router_choice", choice, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
