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

// Number of elements greater than `value`.
int32_t CountGreater(std::span<const float> logits, float value);

}  // namespace sluice::kernels
