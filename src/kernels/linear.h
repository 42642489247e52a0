// linear: y = x W^T, the one matrix product of the model (projections, MLP, logits).
#pragma once

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/matrix.h"
#include "tensor/stored_matrix.h"

namespace sluice::kernels {

// Bytes that a packed matrix [rows, cols] takes, its scales included.
int64_t PackedBytes(const DataFormat& format, int64_t rows, int64_t cols);

// Allocates a packed matrix [rows, cols] of zeros. kUnsupported for a format that has no kernels;
// the message names it and lists those that have.
Result<PackedMatrix> AllocatePacked(const DataFormat& format, int64_t rows, int64_t cols,
                                    const char* what);

// Packs rows [source_row, source_row + num_rows) of `source` into rows [first_row, first_row +
// num_rows) of `matrix`: several checkpoint tensors can fill one matrix (q, k and v; gate and up).
// A plain source (F32, F16 or BF16) is rounded to the type of a plain matrix (nearest even); any
// other source has the matrix's format but for the layout of its scale, and its codes are taken
// over unchanged. A source with a scale per tensor or per row fits a matrix with either. REQUIRES:
// the rows lie inside both; source.cols == matrix.cols.
void PackRows(ThreadPool& pool, PackedMatrix& matrix, int64_t first_row, const StoredMatrix& source,
              int64_t source_row, int64_t num_rows);

// The values of one row, exactly: out [cols]. The reference of all formats, and the embedding's.
void DecodeRow(const PackedMatrix& matrix, int64_t row, float* out);

// y[m, n] = sum over k of x[m, k] * w[n, k], plus bias[n] where `bias` is not null. x: [M, K] F32,
// BF16 or I8; w: [N, K]; y: [M, N] F32, row stride `y_stride` >= N. Weights of every format meet
// BF16 inputs in exact products (codes and, for groups of 4-bit numbers, code * scale are exact in
// BF16), sums are F32, scales of blocks multiply the sums of their block and scales of rows the
// whole sum. (Where the CPU's BF16 instruction takes subnormal numbers for zero, so do weights
// below 2^-126, which only MXFP4 has.) An F32 x is computed in F32 with the exact values of the
// weights. I8 inputs meet I8 weights alone, in exact integer sums that are scaled once at the end.
// The order of the sum over k is the same for every M, every thread count and every position of the
// row in x. REQUIRES: x.cols
// == w.cols.
void Linear(ThreadPool& pool, const PackedMatrix& w, const Activations& x, float* y,
            int64_t y_stride, const float* bias = nullptr);

// Products, grouped ones too, need scratch memory of the calling thread: for activations of 512
// rows of the widest matrix in BF16 (none where all products have few rows), and for each thread of
// the pool some panels of weights in BF16. It grows when it must; a thread that reserves it
// beforehand allocates nothing later. `max_rows`: of any one matrix's product.
void ReserveLinearScratch(const ThreadPool& pool, int64_t max_rows, int64_t max_cols);
// What that takes on a pool of `num_threads`.
int64_t LinearScratchBytes(int num_threads, int64_t max_rows, int64_t max_cols);

}  // namespace sluice::kernels
