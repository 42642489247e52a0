// Reductions over logits for sampling: maximum, log-sum-exp, top k, rank.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace sluice::kernels {

// Index of the largest element, the first in a tie. NaN is smaller than every number.
// REQUIRES: not empty.
int32_t ArgMax(std::span<const float> logits);

// Largest element and log(sum(exp(x - largest))): log_softmax(x)[i] = x[i] - largest - log_sum.
// The order of the sum is fixed.
struct LogSumExp {
  float largest = 0;
  float log_sum = 0;
};
LogSumExp ComputeLogSumExp(std::span<const float> logits);

// The `k` largest as (index, value), by descending value, ties by ascending index.
void TopK(std::span<const float> logits, int k, std::vector<std::pair<int32_t, float>>& out);

// What is left of a row to draw from: logits at least `smallest` whose distance (largest - logit) *
// scale is at most `farthest`.
struct DrawCut {
  float largest = 0;
  float scale = 1;
  float farthest = 0;
  float smallest = 0;
};
// weights[i] = ExpOfMinus of the distance (draw_weights.h), 0 where the logit is not left; the same
// bits by every version. REQUIRES: no NaN; a finite largest logit.
void DrawWeights(std::span<const float> logits, const DrawCut& cut, std::span<float> weights);
// The sums of blocks of kDrawSumBlock weights, the last of which may be shorter: in eight lanes of
// F32 in rising order, then these and what is behind the last whole lanes in F64.
void DrawBlockSums(std::span<const float> weights, std::span<double> sums);

bool HasNan(std::span<const float> values);

// Number of elements greater than `value`.
int32_t CountGreater(std::span<const float> logits, float value);

}  // namespace sluice::kernels
