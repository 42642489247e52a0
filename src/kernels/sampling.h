// Reductions over logits for sampling: maximum, log-sum-exp, top k, rank.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace sluice::kernels {

// Returns the index of the largest element, the first in a tie. NaN is smaller than every number.
// REQUIRES: not empty.
int32_t ArgMax(std::span<const float> logits);

// Returns the largest element and log(sum(exp(x - largest))): log_softmax(x)[i] = x[i] - largest -
// log_sum. The order of the sum is fixed.
struct LogSumExp {
  float largest = 0;
  float log_sum = 0;
};
LogSumExp ComputeLogSumExp(std::span<const float> logits);

// Writes the `k` largest logits to `out` as (index, value), by descending value, ties by ascending
// index.
void TopK(std::span<const float> logits, int k, std::vector<std::pair<int32_t, float>>& out);

// The logits of a row that can be drawn: those that are at least `smallest` and whose distance,
// (largest - logit) * scale, is at most `farthest`.
struct DrawCut {
  float largest = 0;
  float scale = 1;
  float farthest = 0;
  float smallest = 0;
};
// Computes weights[i] = ExpOfMinus of the distance (draw_weights.h), or 0 if the logit cannot be
// drawn. Results are bit-identical on all instruction sets. REQUIRES: no NaN; a finite largest
// logit.
void DrawWeights(std::span<const float> logits, const DrawCut& cut, std::span<float> weights);
// Computes the sums of blocks of kDrawSumBlock weights; the last block may be shorter. Eight lanes
// are summed in F32 in ascending order; then the lanes, and the elements after the last complete
// group of eight, are summed in F64.
void DrawBlockSums(std::span<const float> weights, std::span<double> sums);

bool HasNan(std::span<const float> values);

// Returns the number of elements greater than `value`.
int32_t CountGreater(std::span<const float> logits, float value);

}  // namespace sluice::kernels
