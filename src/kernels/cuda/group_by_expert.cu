// A stable counting sort by one block: each warp sorts a section of the pairs, and the warps'
// counts determine where each warp's pairs of an expert begin.
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kWarps = 16;

struct GroupByExpertLaunch {
  device::GroupByExpertArgs args;
  int expert_bits;  // number of bits of an expert's index
};

// Called by all lanes of a warp. Returns the lanes in `valid` that have the same expert as this
// one.
__device__ __forceinline__ unsigned LanesOfSameExpert(int32_t expert, int expert_bits,
                                                      unsigned valid) {
  unsigned same = valid;
  for (int bit = 0; bit < expert_bits; ++bit) {
    const bool is_set = expert >> bit & 1;
    const unsigned set = __ballot_sync(0xFFFFFFFFu, is_set);
    same &= is_set ? set : ~set;
  }
  return same;
}

// Counts the pairs of the warp's section, in order, in `counters` [num_experts]. Calls visit(pair,
// at) for each pair; `at` is the value of the expert's counter before this pair.
template <typename Visit>
__device__ __forceinline__ void CountPairs(const GroupByExpertLaunch& launch, int32_t* counters,
                                           const Visit& visit) {
  const device::GroupByExpertArgs& args = launch.args;
  const int64_t pairs = args.rows * args.top_k;
  const int64_t section = (pairs + kWarps * 32 - 1) / (kWarps * 32) * 32;
  const int64_t begin = section * (threadIdx.x / 32);
  const int64_t end = begin + section < pairs ? begin + section : pairs;
  const unsigned lane = threadIdx.x % 32;
  for (int64_t base = begin; base < end; base += 32) {
    const int64_t pair = base + lane;
    const bool is_valid = pair < end;
    const int32_t expert = is_valid ? args.chosen[pair] : 0;
    const unsigned valid = __ballot_sync(0xFFFFFFFFu, is_valid);
    const unsigned same = LanesOfSameExpert(expert, launch.expert_bits, valid);
    const int before = __popc(same & ((1u << lane) - 1));
    if (is_valid) visit(pair, counters[expert] + before);
    __syncwarp();
    if (is_valid && before == 0) counters[expert] += __popc(same);
    __syncwarp();
  }
}

__global__ void __launch_bounds__(kWarps * 32) GroupByExpertKernel(GroupByExpertLaunch launch) {
  const device::GroupByExpertArgs& args = launch.args;
  const auto num_experts = static_cast<int>(args.num_experts);
  auto* counts = reinterpret_cast<int32_t*>(SharedMemory());  // [kWarps, num_experts]
  int32_t* begins = counts + kWarps * num_experts;            // [num_experts + 1]
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  int32_t* own_counts = counts + thread / 32 * num_experts;
  for (int i = thread; i < static_cast<int>(kWarps) * num_experts; i += threads) counts[i] = 0;
  __syncthreads();
  CountPairs(launch, own_counts, [](int64_t, int32_t) {});
  __syncthreads();
  // For each expert: replaces each warp's count by the sum of the counts of earlier warps;
  // begins[expert + 1] is the total.
  for (int expert = thread; expert < num_experts; expert += threads) {
    int32_t sum = 0;
    for (int warp = 0; warp < static_cast<int>(kWarps); ++warp) {
      int32_t& count = counts[warp * num_experts + expert];
      const int32_t own = count;
      count = sum;
      sum += own;
    }
    begins[expert + 1] = sum;
  }
  __syncthreads();
  if (thread < 32) {  // prefix sums over experts, 32 at a time
    int32_t before = 0;
    if (thread == 0) begins[0] = 0;
    for (int first = 0; first < num_experts; first += 32) {
      const int expert = first + thread;
      int32_t sum = expert < num_experts ? begins[expert + 1] : 0;
      for (unsigned delta = 1; delta < 32; delta <<= 1) {
        const int32_t other = __shfl_up_sync(0xFFFFFFFFu, sum, delta);
        if (thread >= static_cast<int>(delta)) sum += other;
      }
      if (expert < num_experts) begins[expert + 1] = before + sum;
      before += __shfl_sync(0xFFFFFFFFu, sum, 31);
    }
  }
  __syncthreads();
  for (int i = thread; i <= num_experts; i += threads) args.row_begin[i] = begins[i];
  CountPairs(launch, own_counts, [&](int64_t pair, int32_t count) {
    const int32_t at = begins[args.chosen[pair]] + count;
    args.order[at] = static_cast<int32_t>(pair);
    args.place[pair] = at;
  });
}

}  // namespace

void LaunchGroupByExpert(const StreamHandle& stream, const device::GroupByExpertArgs& args) {
  int bits = 0;
  while (int64_t{1} << bits < args.num_experts) ++bits;
  LaunchShape shape;
  shape.threads = kWarps * 32;
  shape.shared_bytes =
      static_cast<unsigned>(((kWarps + 1) * args.num_experts + 1) * sizeof(int32_t));
  Launch<GroupByExpertKernel>(stream, "group_by_expert", shape, GroupByExpertLaunch{args, bits});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
