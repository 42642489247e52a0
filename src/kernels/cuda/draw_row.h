// A row of logits from which a block draws a token.
#pragma once

#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/ordered_key.h"
#include "kernels/draw_weights.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

constexpr int kDigits = 256;  // values of a digit: keys are searched eight bits at a time
constexpr int kBuckets = kernels::kDrawBuckets;
constexpr int64_t kSumBlock = kernels::kDrawSumBlock;

// The block's shared memory.
struct DrawShared {
  uint64_t reduced[3][32];  // for BlockMax: one array for each of three consecutive calls
  double sums[kBuckets];    // one sum per bucket, later one per value of a digit
  uint32_t counts[kDigits];
  float weights[kSumBlock];
  uint64_t keys[kernels::kMostTopLogits];  // keys of the largest logits
  uint32_t num_keys;
  double found_sum;
  int32_t found;
  // Followed by double [blocks of a row]: inclusive prefix sums of the blocks' weights.
};

struct DrawRow {
  const float* logits;
  int64_t cols;
  const uint32_t* mask;  // the tokens that may be drawn (DrawExtras); null: all
  kernels::DrawSettings settings;
  float largest;
  float smallest;  // the smallest logit that top_k keeps
  int32_t edge;    // the last bucket that top_p keeps; kBuckets without top_p
  uint64_t cut;    // the smallest key that top_p keeps in bucket `edge`
};

__device__ __forceinline__ float MaskedLogit(const DrawRow& row, int64_t i, float logit) {
  if (row.mask == nullptr || (row.mask[i / 32] >> (i % 32) & 1) != 0) return logit;
  return FloatFromBits(0xFF800000u);
}
__device__ __forceinline__ float LogitAt(const DrawRow& row, int64_t i) {
  return MaskedLogit(row, i, row.logits[i]);
}

// Returns the weight of a logit without applying top_p (row.edge and row.cut).
__device__ __forceinline__ float WeightBeforeTopP(const DrawRow& row, float logit, float distance) {
  const bool stays = distance <= row.settings.farthest && logit >= row.smallest;
  return stays ? kernels::ExpOfMinus(distance) : 0.0f;
}

__device__ __forceinline__ float Distance(const DrawRow& row, float logit) {
  return (row.largest - logit) * row.settings.scale;
}

__device__ __forceinline__ float Weight(const DrawRow& row, int64_t i, float logit) {
  const float distance = Distance(row, logit);
  if (row.edge < kBuckets) {
    const int32_t bucket = kernels::DrawBucket(distance);
    if (bucket > row.edge || (bucket == row.edge && OrderedKey(logit, i) < row.cut)) return 0;
  }
  return WeightBeforeTopP(row, logit, distance);
}

// Calls visit(i, logit) for this thread's elements of a row, masked or not. Reads several at a time
// to hide memory latency.
template <typename Visit>
__device__ __forceinline__ void VisitUnmasked(const DrawRow& row, const Visit& visit) {
  constexpr int kAtOnce = 4;
  for (int64_t first = threadIdx.x; first < row.cols; first += kAtOnce * int64_t{blockDim.x}) {
    float logits[kAtOnce];
    SLUICE_UNROLL
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t i = first + j * int64_t{blockDim.x};
      logits[j] = i < row.cols ? row.logits[i] : 0;
    }
    SLUICE_UNROLL
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t i = first + j * int64_t{blockDim.x};
      if (i < row.cols) visit(i, logits[j]);
    }
  }
}
template <typename Visit>
__device__ __forceinline__ void VisitLogits(const DrawRow& row, const Visit& visit) {
  VisitUnmasked(row, [&](int64_t i, float logit) { visit(i, MaskedLogit(row, i, logit)); });
}

// Called by all threads of a block. `sums` has one exact sum per value of a digit. Finds the
// largest value `v` for which reaches(sum over all values >= v) is true, and the sum over the
// values > v. v is -1 if there is no such value.
template <typename T, typename Reaches>
__device__ __forceinline__ void FindDigit(const T* sums, DrawShared& shared,
                                          const Reaches& reaches) {
  if (threadIdx.x < 32) {
    constexpr int kEach = kDigits / 32;
    const auto lane = static_cast<int>(threadIdx.x);
    const int top = kDigits - 1 - lane * kEach;  // the largest of the kEach values of this lane
    T own = 0;
    for (int i = 0; i < kEach; ++i) own += sums[top - i];
    T above = own;  // prefix sum over lanes: first inclusive, then exclusive
    for (unsigned delta = 1; delta < 32; delta <<= 1) {
      const T other = __shfl_up_sync(0xFFFFFFFFu, above, delta);
      if (threadIdx.x >= delta) above += other;
    }
    const unsigned all = __ballot_sync(0xFFFFFFFFu, reaches(above));
    if (all == 0 && lane == 0) shared.found = -1;
    if (all != 0 && lane == __ffs(static_cast<int>(all)) - 1) {
      above -= own;
      int value = top;
      while (!reaches(above + sums[value])) above += sums[value--];
      shared.found = value;
      shared.found_sum = static_cast<double>(above);
    }
  }
  __syncthreads();
}

// Called by all threads of a block. Considers the keys key_of(i, logit) whose bits above `shift` +
// 8 equal `prefix`. Appends to `prefix` the next digit of the `remaining`-th largest of these keys.
// Sets `remaining` to that key's rank among the counts[found] keys with this digit. REQUIRES: a
// barrier since `counts` were read.
template <typename KeyOf>
__device__ __forceinline__ void NarrowKey(const DrawRow& row, int shift, const KeyOf& key_of,
                                          DrawShared& shared, uint64_t& prefix,
                                          uint32_t& remaining) {
  for (unsigned i = threadIdx.x; i < kDigits; i += blockDim.x) shared.counts[i] = 0;
  __syncthreads();
  VisitLogits(row, [&](int64_t i, float logit) {
    const uint64_t key = key_of(i, logit);
    if (shift == 56 || key >> (shift + 8) == prefix)
      atomicAdd(&shared.counts[key >> shift & 0xFF], 1u);
  });
  __syncthreads();
  FindDigit(shared.counts, shared, [&](uint32_t count) { return count >= remaining; });
  prefix = prefix << 8 | static_cast<uint64_t>(shared.found);
  remaining -= static_cast<uint32_t>(shared.found_sum);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
