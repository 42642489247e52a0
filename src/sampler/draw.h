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

// Memory of one thread, allocated once for a vocabulary.
struct DrawScratch {
  explicit DrawScratch(int64_t vocab_size);

  static constexpr int kNumBuckets = kernels::kDrawBuckets;
  std::vector<float> weights;                     // [vocab_size], see NeedsWeights
  std::vector<double> block_sums;                 // of the weights, by kDrawSumBlock
  std::vector<std::pair<int32_t, float>> sorted;  // of one bucket, or the largest
  std::array<std::array<double, kNumBuckets>, 2> bucket_weight{};
};

// What logits are multiplied with before a token is drawn; 0 for the greedy choice.
float ScaleOf(const SamplingParams& params);

// The same settings for a device that draws tokens (sample_rows of kernels/cuda/device_kernels.h);
// a temperature of 0 takes the largest logit.
kernels::DrawSettings DrawSettingsOf(const SamplingParams& params, double uniform);

// Whether the logprobs that are wanted are computed from the weights that DrawToken leaves.
bool NeedsWeights(const SamplingParams& params);

// The token that `uniform` in [0, 1) selects from softmax(logits / temperature) after the cuts, in
// this order:
//   min_p: tokens less likely than min_p times the most likely are removed;
//   top_k: those with logits below the k-th largest are removed (equal ones stay);
//   top_p: of the rest, the most likely ones are kept, as long as the probabilities before them add
//   up to less than top_p (equal ones by ascending id).
// No full sort: the weights are summed into buckets of nearly equal logits, and only the bucket at
// the edge is sorted. All sums have a fixed order or are exact: a device that sums in another order
// draws the same token (SampleRowsArgs of kernels/cuda/device_kernels.h). `maxima`: of the logits'
// blocks (kernels/block_maxima.h), which tell what the cuts leave without a look at all; empty: not
// known. They make no difference to the token. REQUIRES: no NaN;
// `largest` is the largest logit and finite; temperature > 0.
int32_t DrawToken(std::span<const float> logits, float largest, const SamplingParams& params,
                  double uniform, DrawScratch& scratch, std::span<const float> maxima = {});

}  // namespace sluice
