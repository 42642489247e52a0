// What sampling needs of the logits: maxima, sums, and the largest entries.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace sluice::kernels {

// Index of the largest element; the first of equals. NaN counts as smaller than everything.
// REQUIRES: not empty.
int32_t ArgMax(std::span<const float> logits);

// Largest element and log(sum(exp(x - largest))): log_softmax(x)[i] = x[i] - largest - log_sum.
// Fixed order of sums.
struct LogSumExp {
  float largest = 0;
  float log_sum = 0;
};
LogSumExp ComputeLogSumExp(std::span<const float> logits);

// The `k` largest (index, value), descending, equals by rising index. `scratch` is reused between
// calls.
void TopK(std::span<const float> logits, int k, std::vector<std::pair<int32_t, float>>& out);

// Number of elements greater than `value`.
int32_t CountGreater(std::span<const float> logits, float value);

}  // namespace sluice::kernels
