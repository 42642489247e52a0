// linear: y = x W^T, the matrix product of all layers (projections, MLP, logits).
#pragma once

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/block_maxima.h"
#include "kernels/matrix.h"
#include "tensor/stored_matrix.h"

namespace sluice::kernels {

// Size in bytes of a packed matrix [rows, cols], scales included.
int64_t PackedBytes(const DataFormat& format, int64_t rows, int64_t cols);

// Allocates a packed matrix [rows, cols] of zeros. kUnsupported for a format without kernels; the
// message names it and lists the supported ones.
Result<PackedMatrix> AllocatePacked(const DataFormat& format, int64_t rows, int64_t cols,
                                    const char* what);

// Packs rows [source_row, source_row + num_rows) of `source` into rows [first_row, first_row +
// num_rows) of `matrix`: several checkpoint tensors can fill one matrix (q, k and v; gate and up).
// A plain source (F32, F16 or BF16) is rounded to the type of a plain matrix (nearest even); any
// other source must have the matrix's format except for the layout of its scales, and its codes are
// copied unchanged. A source with a scale per tensor or per row fits a matrix with either.
// Returns whether all numbers and codes of the source's rows are finite; the scales are not looked
// at. REQUIRES: the rows are within both; source.cols == matrix.cols.
bool PackRows(ThreadPool& pool, PackedMatrix& matrix, int64_t first_row, const StoredMatrix& source,
              int64_t source_row, int64_t num_rows);

// Decodes one row exactly: out [cols]. The reference for all formats; used by the embedding.
void DecodeRow(const PackedMatrix& matrix, int64_t row, float* out);

// y[m, n] = sum over k of x[m, k] * w[n, k], plus bias[n] where `bias` is not null. x: [M, K] F32,
// BF16 or I8; w: [N, K]; y: [M, N] F32, row stride `y_stride` >= N. With BF16 inputs the products
// are exact for weights of every format (codes and, for groups of 4-bit numbers, code * scale are
// exact in BF16), sums are F32, block scales multiply the sum of their block and row scales the
// whole sum. (Where the CPU's BF16 instruction flushes subnormal numbers to zero, weights below
// 2^-126, which only MXFP4 has, are zero.) F32 inputs are multiplied in F32 by the exact values of
// the weights. I8 inputs require I8 weights: exact integer sums, scaled once at the end. The order
// of the sum over k is the same for every M, thread count and position of the row in x. REQUIRES:
// x.cols == w.cols. Where `maxima` are wanted, those of the rows of y.
void Linear(ThreadPool& pool, const PackedMatrix& w, const Activations& x, float* y,
            int64_t y_stride, const float* bias = nullptr, const RowMaxima& maxima = {});

// Where the weights have an order of inputs, those of x are brought into it first, and the order of
// the sum over k is that one.
//
// Linear and GroupedLinear use scratch memory of the calling thread: 512 rows of BF16 activations
// of the widest matrix (none where all products have few rows), some panels of BF16 weights for
// each thread of the pool and, where `orders_inputs`, 512 rows of inputs in another order. It grows
// on demand; a thread that reserves it beforehand allocates nothing later. `max_rows`: of the
// product with any one matrix.
void ReserveLinearScratch(const ThreadPool& pool, int64_t max_rows, int64_t max_cols,
                          bool orders_inputs = false);
// The size of that memory on a pool of `num_threads`.
int64_t LinearScratchBytes(int num_threads, int64_t max_rows, int64_t max_cols,
                           bool orders_inputs = false);

}  // namespace sluice::kernels
