// Each block draws from one row. It passes over the row once for each quantity: the largest logit,
// the k-th largest, the weights of buckets, the end of top_p inside a bucket, and the sums in which
// the random number is looked up. Weights are recomputed in every pass, so that no memory is needed
// besides the logits.
#include "kernels/cuda/draw_lists.h"
#include "kernels/cuda/draw_logprobs.h"
#include "kernels/cuda/draw_row.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

using kernels::DrawError;

constexpr unsigned kSampleThreads = 1024;

// Called by all threads of a block. Returns the logit with rank k among the largest ones.
__device__ __forceinline__ float KthLargest(const DrawRow& row, DrawShared& shared) {
  uint64_t prefix = 0;
  auto remaining = static_cast<uint32_t>(row.settings.top_k);
  for (int shift = 56; shift >= 32; shift -= 8) {
    const auto key_of = [](int64_t, float logit) { return OrderedKey(logit, 0); };
    NarrowKey(row, shift, key_of, shared, prefix, remaining);
    __syncthreads();
  }
  return FloatOfOrdered(static_cast<uint32_t>(prefix));
}

// Called by all threads of a block. Sets row.edge and row.cut for top_p.
__device__ __forceinline__ void CutTail(DrawRow& row, DrawShared& shared) {
  for (unsigned i = threadIdx.x; i < kBuckets; i += blockDim.x) shared.sums[i] = 0;
  __syncthreads();
  VisitLogits(row, [&](int64_t, float logit) {
    const float distance = Distance(row, logit);
    const float weight = WeightBeforeTopP(row, logit, distance);
    if (weight != 0)
      atomicAdd(&shared.sums[kernels::DrawBucket(distance)], kernels::BucketWeight(weight));
  });
  __syncthreads();
  if (threadIdx.x == 0) {  // computed sequentially, because these sums are rounded
    double sum = 0;
    for (int i = 0; i < kBuckets; ++i) shared.sums[i] = sum += shared.sums[i];
  }
  __syncthreads();
  const double target = row.settings.top_p * shared.sums[kBuckets - 1];
  uint32_t rank = 1;  // kBuckets - bucket; the default is the last bucket
  for (unsigned i = threadIdx.x; i < kBuckets; i += blockDim.x) {
    if (shared.sums[i] >= target && rank < kBuckets - i) rank = kBuckets - i;
  }
  rank = BlockMax(rank, reinterpret_cast<uint32_t*>(shared.reduced[0]));
  row.edge = kBuckets - static_cast<int32_t>(rank);
  const double before = row.edge == 0 ? 0.0 : shared.sums[row.edge - 1];
  double inside = 0;
  uint64_t prefix = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    __syncthreads();
    for (unsigned i = threadIdx.x; i < kDigits; i += blockDim.x) shared.sums[i] = 0;
    __syncthreads();
    VisitLogits(row, [&](int64_t i, float logit) {
      const float distance = Distance(row, logit);
      if (kernels::DrawBucket(distance) != row.edge) return;
      const uint64_t key = OrderedKey(logit, i);
      if (shift != 56 && key >> (shift + 8) != prefix) return;
      const float weight = WeightBeforeTopP(row, logit, distance);
      if (weight != 0) atomicAdd(&shared.sums[key >> shift & 0xFF], kernels::BucketWeight(weight));
    });
    __syncthreads();
    FindDigit(shared.sums, shared, [&](double sum) { return before + (inside + sum) >= target; });
    if (shared.found < 0) {  // the whole bucket stays
      row.cut = 0;
      return;
    }
    prefix = prefix << 8 | static_cast<uint64_t>(shared.found);
    inside += shared.found_sum;
  }
  row.cut = prefix;
}

// Called by all threads of a block. Returns the element that the row's random number selects. Sums
// in the order of Select in sampler/draw.cc.
__device__ __forceinline__ int32_t Select(const DrawRow& row, DrawShared& shared, double* sums) {
  const int64_t blocks = (row.cols + kSumBlock - 1) / kSumBlock;
  const int64_t groups_end = row.cols / 8 * 8;  // the elements from here on are added one by one
  const unsigned lane = threadIdx.x % 32, place = lane % 8;
  uint64_t last_with_weight = 0;  // block + 1
  // Eight lanes sum a block of weights.
  for (int64_t first = threadIdx.x / 32 * 4; first < blocks; first += blockDim.x / 32 * 4) {
    const int64_t block = first + lane / 8, begin = block * kSumBlock;
    const int64_t block_end = begin + kSumBlock < row.cols ? begin + kSumBlock : row.cols;
    const int64_t end = block_end < groups_end ? block_end : groups_end;
    float partial = 0;
    for (int64_t i = begin + place; i < end; i += 8) partial += Weight(row, i, LogitAt(row, i));
    double sum = 0;
    for (int i = 0; i < 8; ++i)
      sum += static_cast<double>(
          __shfl_sync(0xFFFFFFFFu, partial, static_cast<int>(lane / 8 * 8) + i));
    if (block >= blocks || place != 0) continue;
    for (int64_t i = end > begin ? end : begin; i < block_end; ++i)
      sum += static_cast<double>(Weight(row, i, LogitAt(row, i)));
    sums[block] = sum;
    if (sum != 0) last_with_weight = static_cast<uint64_t>(block) + 1;
  }
  last_with_weight = BlockMax(last_with_weight, shared.reduced[1]);
  __syncthreads();
  if (threadIdx.x == 0) {
    double sum = 0;
    for (int64_t i = 0; i < blocks; ++i) sums[i] = sum += sums[i];
  }
  __syncthreads();
  const double target = row.settings.uniform * sums[blocks - 1];
  uint64_t rank = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += blockDim.x) {
    const auto own = static_cast<uint64_t>(blocks - i);
    if (sums[i] > target && rank < own) rank = own;
  }
  rank = BlockMax(rank, shared.reduced[2]);
  // Because of rounding, the target may be slightly larger than the sum up to the last weight.
  const int64_t here =
      rank != 0 ? blocks - static_cast<int64_t>(rank) : static_cast<int64_t>(last_with_weight) - 1;
  const int64_t begin = here * kSumBlock;
  const int64_t count = begin + kSumBlock < row.cols ? kSumBlock : row.cols - begin;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
    shared.weights[i] = Weight(row, begin + i, LogitAt(row, begin + i));
  __syncthreads();
  if (threadIdx.x != 0) return 0;
  double reached = here == 0 ? 0.0 : sums[here - 1];
  int64_t last = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (shared.weights[i] == 0) continue;
    last = i;
    reached += static_cast<double>(shared.weights[i]);
    if (rank != 0 && reached > target) break;
  }
  return static_cast<int32_t>(begin + last);
}

__global__ void __launch_bounds__(kSampleThreads) SampleRowsKernel(device::SampleRowsArgs args) {
  DrawShared& shared = *reinterpret_cast<DrawShared*>(SharedMemory());
  auto* block_sums = reinterpret_cast<double*>(SharedMemory() + sizeof(DrawShared));
  const int64_t index = blockIdx.x;
  const kernels::DrawExtras* extras = args.extras == nullptr ? nullptr : args.extras + index;
  float* const logits = args.logits + index * args.cols;
  DrawRow row{};
  row.logits = logits;
  row.cols = args.cols;
  row.settings = args.settings[index];
  if (extras != nullptr) {
    row.mask = extras->draw_mask < 0 ? nullptr : args.words + extras->draw_mask;
    ApplyLists(*extras, args.words, logits);
  }
  uint64_t best = 0;
  uint64_t has_nan = 0;
  VisitUnmasked(row, [&](int64_t i, float logit) {
    const uint64_t key = OrderedKey(MaskedLogit(row, i, logit), i);
    best = key > best ? key : best;
    has_nan |= logit != logit;
  });
  best = BlockMax(best, shared.reduced[0]);
  has_nan = BlockMax(has_nan, shared.reduced[1]);
  __syncthreads();
  row.largest = LogitAt(row, IndexOfKey(best));
  const bool is_finite = (BitsOf(row.largest) & 0x7F800000u) != 0x7F800000u;
  if (has_nan != 0 || !is_finite) {
    if (threadIdx.x == 0) {
      const bool is_empty = extras != nullptr && extras->is_changed != 0 && row.largest < 0;
      args.tokens[index] = -1;
      args.errors[index] = has_nan != 0 ? DrawError::kNan
                           : is_empty   ? DrawError::kNothingAllowed
                                        : DrawError::kNoFiniteLogit;
    }
    return;
  }
  int32_t token = IndexOfKey(best);
  row.smallest = FloatFromBits(0xFF800000u);
  row.edge = kBuckets;
  if (row.settings.scale != 0) {
    if (row.settings.top_k > 0 && row.settings.top_k < row.cols)
      row.smallest = KthLargest(row, shared);
    if (row.settings.top_p < 1) CutTail(row, shared);
    __syncthreads();
    token = Select(row, shared, block_sums);
  }
  if (threadIdx.x == 0) {
    args.tokens[index] = token;
    args.errors[index] = DrawError::kNone;
    shared.found = token;
  }
  if (extras == nullptr || extras->logprobs == kernels::LogprobsOf::kNone) return;
  __syncthreads();
  token = shared.found;
  const bool of_raw = extras->logprobs == kernels::LogprobsOf::kRaw;
  if (of_raw) {
    RestoreLists(*extras, args.words, logits);
    row.mask = extras->mask < 0 ? nullptr : args.words + extras->mask;
  }
  TellLogprobs(row, token, !of_raw && row.settings.scale != 0, extras->num_top, shared,
               args.logprobs[index], args.tops + index * args.most_top);
}

}  // namespace

void LaunchSampleRows(const StreamHandle& stream, const device::SampleRowsArgs& args) {
  const int64_t blocks = (args.cols + kSumBlock - 1) / kSumBlock;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.threads = kSampleThreads;
  shape.shared_bytes = static_cast<unsigned>(sizeof(DrawShared) + blocks * sizeof(double));
  Launch<SampleRowsKernel>(stream, "sample_rows", shape, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
