// Applies the lists of DrawExtras to a row of logits in place. The number in each list entry is
// exchanged with the previous logit, so that the row can be restored.
#pragma once

#include "kernels/cuda/device_code.h"
#include "kernels/draw_settings.h"
#include "kernels/draw_weights.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

// Called by all threads of a block. Replaces each listed logit by change(logit, word); the entry's
// word then contains the previous logit.
template <typename Change>
__device__ __forceinline__ void ExchangeLogits(uint32_t* list, int32_t count, float* logits,
                                               const Change& change) {
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count;
       i += static_cast<int32_t>(blockDim.x)) {
    float& logit = logits[list[2 * i]];
    const float before = logit;
    logit = change(before, list[2 * i + 1]);
    list[2 * i + 1] = BitsOf(before);
  }
  __syncthreads();
}

// Called by all threads of a block. Every operation is rounded separately, as in the sampler.
__device__ __forceinline__ void ApplyLists(const kernels::DrawExtras& extras, uint32_t* words,
                                           float* logits) {
  ExchangeLogits(words + extras.biases, extras.num_biases, logits, [](float logit, uint32_t bias) {
    constexpr uint32_t kMinusInfinity = 0xFF800000u;
    if (bias != kMinusInfinity) return logit + FloatFromBits(bias);
    return logit != logit ? logit : FloatFromBits(kMinusInfinity);  // NaN must be kept, so that it
                                                                    // is detected
  });
  ExchangeLogits(words + extras.counts, extras.num_counts, logits,
                 [&](float logit, uint32_t count) {
                   logit = logit > 0 ? logit / extras.repetition
                                     : kernels::RoundedProduct(logit, extras.repetition);
                   if (count == 0) return logit;
                   logit -= kernels::RoundedProduct(extras.frequency, static_cast<float>(count));
                   return logit - extras.presence;
                 });
}

// Called by all threads of a block. Restores the row to its state before ApplyLists.
__device__ __forceinline__ void RestoreLists(const kernels::DrawExtras& extras, uint32_t* words,
                                             float* logits) {
  const auto back = [](float, uint32_t before) { return FloatFromBits(before); };
  ExchangeLogits(words + extras.counts, extras.num_counts, logits, back);
  ExchangeLogits(words + extras.biases, extras.num_biases, logits, back);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
