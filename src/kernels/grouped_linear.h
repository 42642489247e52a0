// grouped linear: the matrix products of a mixture of experts, each expert with its own range of
// rows.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/matrix.h"

namespace sluice::kernels {

// For every expert e, computes y[m, :] = x[m, :] W_e^T (+ bias[e, :]) for the rows m in
// [row_begin[e], row_begin[e + 1]). Reads the weights of each active expert once, and those of
// other experts not at all. All experts have the same shape [N, K] and format. row_begin: [experts
// + 1], ascending, its last element x.rows. bias: [experts, N], or null. The arithmetic of a row is
// that of Linear (linear.h), independent of the other rows and experts.
void GroupedLinear(ThreadPool& pool, std::span<const PackedMatrix> experts,
                   std::span<const int32_t> row_begin, const Activations& x, float* y,
                   int64_t y_stride, const float* bias = nullptr);

}  // namespace sluice::kernels
