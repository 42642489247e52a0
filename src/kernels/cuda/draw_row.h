// A row of logits from which a token is drawn, as the block that draws it goes over it.
#pragma once

#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/ordered_key.h"
#include "kernels/draw_weights.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

constexpr int kDigits = 256;  // a key is looked for eight bits at a time
constexpr int kBuckets = kernels::kDrawBuckets;
constexpr int64_t kSumBlock = kernels::kDrawSumBlock;

// The block's shared memory.
struct DrawShared {
  uint64_t reduced[3][32];  // for BlockMax: a place for each of the calls in a row
  double sums[kBuckets];    // of buckets, then of the values of a digit
  uint32_t counts[kDigits];
  float weights[kSumBlock];
  uint64_t keys[kernels::kMostTopLogits];  // of the largest logits
  uint32_t num_keys;
  double found_sum;
  int32_t found;
  // Then double [blocks of a row]: sums of the weights before and in each.
};

struct DrawRow {
  const float* logits;
  int64_t cols;
  const uint32_t* mask;  // of the tokens that count (DrawExtras), or null: all do
  kernels::DrawSettings settings;
  float largest;
  float smallest;  // that top_k leaves
  int32_t edge;    // the last bucket that top_p leaves, kBuckets without top_p
  uint64_t cut;    // the smallest key that it leaves there
};

__device__ __forceinline__ float MaskedLogit(const DrawRow& row, int64_t i, float logit) {
  if (row.mask == nullptr || (row.mask[i / 32] >> (i % 32) & 1) != 0) return logit;
  return FloatFromBits(0xFF800000u);
}
__device__ __forceinline__ float LogitAt(const DrawRow& row, int64_t i) {
  return MaskedLogit(row, i, row.logits[i]);
}

// What the weights of row.cut apart make of element `i`.
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

// visit(i, logit) for this thread's elements of a row, masked or not, which it reads several at a
// time: the way to them is long.
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

// Block. Of the sums of a digit's values: the largest value `v` for which reaches(the sum of those
// from v on) holds, and the sum of those above v; -1 if there is none. The sums are exact.
template <typename T, typename Reaches>
__device__ __forceinline__ void FindDigit(const T* sums, DrawShared& shared,
                                          const Reaches& reaches) {
  if (threadIdx.x < 32) {
    constexpr int kEach = kDigits / 32;
    const auto lane = static_cast<int>(threadIdx.x);
    const int top = kDigits - 1 - lane * kEach;  // the lane's values: this one and those below
    T own = 0;
    for (int i = 0; i < kEach; ++i) own += sums[top - i];
    T above = own;  // of all lanes up to this one, then of those before
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

// Block. Of the keys key_of(i, logit) that begin with `prefix`, in their highest bits above
// `shift` + 8: appends to it the next digit of the one that is the `remaining`-th largest;
// `remaining` is then that among those with this digit, of which there are counts[found].
// REQUIRES: a barrier since `counts` were read.
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
