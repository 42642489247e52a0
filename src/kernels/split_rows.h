// split rows: F32 activations as pairs of BF16 rows, for products that need more than the eight
// bits of one.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/matrix.h"

namespace sluice::kernels {

// out[2 * i, :] = x[i, :] rounded to BF16, out[2 * i + 1, :] = what that leaves, rounded to BF16:
// together they hold x to 16 bits. x: F32; out: dense [2 * rows, cols].
void SplitRows(ThreadPool& pool, const Activations& x, BFloat16* out);

// y[i, :] = pairs[2 * i, :] + pairs[2 * i + 1, :], plus bias where it is not null: the products of
// the rows that SplitRows made. pairs: dense [2 * rows, cols]; y: row stride y_stride.
void AddPairs(ThreadPool& pool, const float* pairs, const float* bias, int64_t rows, int64_t cols,
              float* y, int64_t y_stride);

}  // namespace sluice::kernels
