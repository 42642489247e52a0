// linear: y = x W^T, the one matrix product of the model (projections, MLP, logits).
#pragma once

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/matrix.h"

namespace sluice::kernels {

// Bytes that a packed matrix [rows, cols] takes.
int64_t PackedBytes(const DataFormat& format, int64_t rows, int64_t cols);

// Allocates a packed matrix [rows, cols] of zeros. Formats: BF16 and F32 without scales.
// kUnsupported for others.
Result<PackedMatrix> AllocatePacked(const DataFormat& format, int64_t rows, int64_t cols,
                                    const char* what);

// Packs a row-major matrix [num_rows, matrix.cols] into rows [first_row, first_row + num_rows) of
// `matrix`: several checkpoint tensors can fill one matrix (q, k and v; gate and up). `source_type`
// is F32, F16 or BF16 and is rounded to matrix.format.type (nearest even). `source` needs no
// alignment. REQUIRES: the rows lie inside the matrix.
void PackRows(ThreadPool& pool, PackedMatrix& matrix, int64_t first_row, int64_t num_rows,
              const void* source, ElementType source_type);

// y[m, n] = sum over k of x[m, k] * w[n, k], plus bias[n] where `bias` is not null. x: [M, K] F32
// or BF16; w: [N, K]; y: [M, N] F32, row stride `y_stride` >= N. BF16 inputs meet BF16 weights in
// exact products; sums are F32. An F32 x with BF16 or F32 weights is computed in F32. The order of
// the sum over k is the same for every M, every thread count and every position of the row in x.
// REQUIRES: x.cols == w.cols; a BF16 x needs BF16 weights.
void Linear(ThreadPool& pool, const PackedMatrix& w, const Activations& x, float* y,
            int64_t y_stride, const float* bias = nullptr);

// Some implementations pack the activations of a product of many rows into scratch memory of the
// calling thread: at most 512 rows (a multiple of 32) of the widest matrix in BF16. It grows when
// it must; a thread that reserves it beforehand allocates nothing later.
void ReserveLinearScratch(int64_t max_rows, int64_t max_cols);

}  // namespace sluice::kernels
