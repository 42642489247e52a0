// grouped linear: the matrix product of a mixture of experts, each expert with rows of its own.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/matrix.h"

namespace sluice::kernels {

// For every expert e: y[m, :] = x[m, :] W_e^T for the rows m in [row_begin[e], row_begin[e + 1]),
// so that each active expert's weights pass by once and those of the others are not read. All
// experts have the same shape [N, K] and format. row_begin: [experts + 1], rising, its last element
// x.rows. The arithmetic of a row is that of Linear (linear.h), whatever the other rows and
// experts.
void GroupedLinear(ThreadPool& pool, std::span<const PackedMatrix> experts,
                   std::span<const int32_t> row_begin, const Activations& x, float* y,
                   int64_t y_stride);

}  // namespace sluice::kernels
