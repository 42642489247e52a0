// residual streams: the weighted sums of hyper-connections, whose residual consists of several
// streams (DeepSeek V4). Source of the formulas: transformers' DeepseekV4HyperConnection and
// DeepseekV4HyperHead.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"

namespace sluice::kernels {

inline constexpr int kMostStreams = 8;

struct StreamRule {
  int count = 1;      // streams
  int64_t width = 0;  // elements of a stream
  int iterations = 1;
  float eps = 0;
  float norm_eps = 0;
};

// With r the RMS of a row's streams (norm_eps is added to the mean of the squares) and d the
// products of `matrix` and the streams, divided by r, the weights are:
//   of the sum     sigmoid(scale[0] d + base) + eps, [count]
//   of the result  2 sigmoid(scale[1] d + base), [count]
//   of the mix     softmax(scale[2] d + base) + eps over each row of [count, count]; then its
//                  columns are divided by (eps + their sums); then, `iterations` - 1 times, its
//                  rows and its columns
// F32, contiguous.
struct StreamParameters {
  const float* matrix = nullptr;  // [count * (2 + count), count * width]; or [count, ...]: sum only
  const float* base = nullptr;    // as many as matrix has rows
  const float* scale = nullptr;   // [3], or [1]
};

// Writes the weighted sums of the streams [rows, count, width] to out [rows, width], and the
// weights of the result and of the mix to mixes [rows, count * (1 + count)]. mixes: null if the
// parameters are only those of the sum. A row's result does not depend on other rows.
void CollapseStreams(ThreadPool& pool, const StreamRule& rule, const StreamParameters& parameters,
                     const float* streams, int64_t rows, float* mixes, float* out);

// Computes stream k = weight k of the result * delta + the sum over j of mix[j, k] * stream j, in
// place. delta: [rows, width]; mixes: from CollapseStreams.
void ExpandStreams(ThreadPool& pool, const StreamRule& rule, const float* mixes, const float* delta,
                   int64_t rows, float* streams);

}  // namespace sluice::kernels
