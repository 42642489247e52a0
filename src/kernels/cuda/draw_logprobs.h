// Computes logprobs and top logits of a row, in addition to the token drawn from it.
#pragma once

#include "kernels/cuda/draw_row.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

// The logits for which logprobs are requested (LogprobsOf). `is_scaled`: whether they are the
// logits from which the token was drawn (kDrawn).
struct ToldLogits {
  const DrawRow& row;
  bool is_scaled;
  bool cuts;

  __device__ __forceinline__ float operator()(int64_t i, float logit) const {
    if (!is_scaled) return logit;
    if (cuts && Weight(row, i, logit) == 0) return FloatFromBits(0xFF800000u);
    return kernels::RoundedProduct(logit, row.settings.scale);
  }
};

// Called by all threads of a block. Writes the `wanted` largest logits to top[0 .. wanted), equal
// logits in ascending order of the token. Searches the logits' keys digit by digit, from the
// highest digit, until exactly `wanted` keys remain.
__device__ __forceinline__ void TellLargest(const ToldLogits& told, uint32_t wanted,
                                            DrawShared& shared, kernels::TopLogit* top) {
  const auto key_of = [&](int64_t i, float logit) { return OrderedKey(told(i, logit), i); };
  uint64_t prefix = 0;
  uint32_t remaining = wanted;
  int shift = 56;
  if (threadIdx.x == 0) shared.num_keys = 0;
  for (;; shift -= 8) {
    NarrowKey(told.row, shift, key_of, shared, prefix, remaining);
    if (shared.counts[shared.found] == remaining) break;  // the last digit leaves a single key
    __syncthreads();
  }
  VisitLogits(told.row, [&](int64_t i, float logit) {
    const uint64_t key = key_of(i, logit);
    if (key >> shift >= prefix) shared.keys[atomicAdd(&shared.num_keys, 1u)] = key;
  });
  __syncthreads();
  if (threadIdx.x >= wanted) return;
  const uint64_t own = shared.keys[threadIdx.x];
  uint32_t place = 0;
  for (uint32_t i = 0; i < wanted; ++i) place += shared.keys[i] > own ? 1 : 0;
  const int32_t token = IndexOfKey(own);
  top[place] = {token, told(token, LogitAt(told.row, token))};
}

// Called by all threads of a block. REQUIRES: a barrier since the last use of shared memory.
__device__ __forceinline__ void TellLogprobs(const DrawRow& row, int32_t token, bool is_scaled,
                                             int32_t num_top, DrawShared& shared,
                                             kernels::DrawnLogprobs& out, kernels::TopLogit* top) {
  const kernels::DrawSettings& settings = row.settings;
  const bool cuts =
      settings.top_k > 0 || settings.top_p < 1 || settings.farthest < FloatFromBits(0x7F800000u);
  const ToldLogits told = {row, is_scaled, cuts};
  uint64_t best = 0;
  VisitLogits(row, [&](int64_t i, float logit) {
    const uint64_t key = OrderedKey(told(i, logit), i);
    best = key > best ? key : best;
  });
  best = BlockMax(best, shared.reduced[0]);
  const float largest = FloatOfOrdered(static_cast<uint32_t>(best >> 32));
  const float chosen = told(token, LogitAt(row, token));
  double sum = 0;
  uint32_t greater = 0;
  VisitLogits(row, [&](int64_t i, float logit) {
    const float number = told(i, logit);
    sum += static_cast<double>(kernels::ExpOfMinus(largest - number));
    greater += number > chosen ? 1 : 0;
  });
  for (int mask = 16; mask > 0; mask >>= 1) {
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, mask);
    greater += __shfl_xor_sync(0xFFFFFFFFu, greater, mask);
  }
  if (threadIdx.x % 32 == 0) {
    shared.sums[threadIdx.x / 32] = sum;
    shared.counts[threadIdx.x / 32] = greater;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) {
      sum += shared.sums[warp];
      greater += shared.counts[warp];
    }
    out = {sum, largest, chosen, int64_t{greater} + 1};
  }
  if (num_top == 0) return;
  __syncthreads();
  const auto wanted = static_cast<uint32_t>(num_top < row.cols ? num_top : row.cols);
  TellLargest(told, wanted, shared, top);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
