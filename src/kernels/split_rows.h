// split rows: represents F32 activations as sums of two BF16 rows, for products that need more than
// the eight significant bits of one BF16 number.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/matrix.h"

namespace sluice::kernels {

// Computes out[2 * i, :] = x[i, :] rounded to BF16, out[2 * i + 1, :] = the remainder, rounded to
// BF16: their sum has 16 significant bits of x. x: F32; out: contiguous [2 * rows, cols].
void SplitRows(ThreadPool& pool, const Activations& x, BFloat16* out);

// Computes y[i, :] = pairs[2 * i, :] + pairs[2 * i + 1, :], plus bias if it is not null: combines
// the products of the rows that SplitRows made. pairs: contiguous [2 * rows, cols]; y: row stride
// y_stride.
void AddPairs(ThreadPool& pool, const float* pairs, const float* bias, int64_t rows, int64_t cols,
              float* y, int64_t y_stride);

}  // namespace sluice::kernels
