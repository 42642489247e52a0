// Draws a token from a row of logits: temperature, min_p, top_k, top_p.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/draw_settings.h"
#include "kernels/draw_weights.h"
#include "sampler/sampling_params.h"

namespace sluice {

// A thread's memory for drawing, allocated once for a vocabulary.
struct DrawScratch {
  explicit DrawScratch(int64_t vocab_size);

  static constexpr int kNumBuckets = kernels::kDrawBuckets;
  std::vector<float> weights;                     // [vocab_size]; see NeedsWeights
  std::vector<double> block_sums;                 // sums of kDrawSumBlock weights each
  std::vector<std::pair<int32_t, float>> sorted;  // the tokens of one bucket, or the largest logits
  std::array<std::array<double, kNumBuckets>, 2> bucket_weight{};
};

// The factor by which logits are multiplied before a token is drawn; 0: greedy.
float ScaleOf(const SamplingParams& params);

// Returns the settings for a device that draws tokens (sample_rows in
// kernels/cuda/device_kernels.h). With temperature 0 the device takes the largest logit.
kernels::DrawSettings DrawSettingsOf(const SamplingParams& params, double uniform);

// Whether the requested logprobs are computed from the weights that DrawToken leaves in the scratch
// memory.
bool NeedsWeights(const SamplingParams& params);

// Returns the token that `uniform` in [0, 1) selects from softmax(logits / temperature) after these
// cuts, in order:
//
//    min_p: removes tokens that are less likely than min_p times the most likely one;
//    top_k: removes tokens whose logits are below the k-th largest (ties stay);
//    top_p: keeps the most likely of the remaining tokens, as long as the probabilities before them
//    add up to less than top_p (ties by ascending id).
//
// Does not sort all tokens: weights are summed into buckets of nearly equal logits, and only the
// bucket at the edge is sorted. All sums are exact or have a fixed order, so a device that sums in
// another order draws the same token (SampleRowsArgs in kernels/cuda/device_kernels.h). `maxima`:
// the maximum of each block of logits (kernels/block_maxima.h), used to skip blocks that the cuts
// remove; empty: unknown. The result does not depend on it. REQUIRES: no NaN; `largest` is the
// largest logit and finite; temperature > 0.
int32_t DrawToken(std::span<const float> logits, float largest, const SamplingParams& params,
                  double uniform, DrawScratch& scratch, std::span<const float> maxima = {});

}  // namespace sluice
