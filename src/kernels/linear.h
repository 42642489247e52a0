// linear: y = x W^T, the matrix product of all layers (projections, MLP, logits).
#pragma once

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/block_maxima.h"
#include "kernels/matrix.h"
#include "tensor/stored_matrix.h"

namespace sluice::kernels {

// Returns the size of a packed matrix [rows, cols] in bytes, including scales.
int64_t PackedBytes(const DataFormat& format, int64_t rows, int64_t cols);

// Allocates a packed matrix [rows, cols] of zeros. kUnsupported if there are no kernels for the
// format; the message names it and lists the supported ones.
Result<PackedMatrix> AllocatePacked(const DataFormat& format, int64_t rows, int64_t cols,
                                    const char* what);

// Packs rows [source_row, source_row + num_rows) of `source` into rows [first_row, first_row +
// num_rows) of `matrix`. Several checkpoint tensors can fill one matrix (q, k and v; gate and up).
// A plain source (F32, F16 or BF16) is rounded to the type of a plain matrix (nearest even). Any
// other source must have the matrix's format, except for the layout of its scales, and its codes
// are copied unchanged. A source with one scale per tensor or per row fits a matrix with either
// layout. Returns whether all elements and codes of the source's rows are finite; scales are not
// checked. REQUIRES: the rows are within both matrices; source.cols == matrix.cols.
bool PackRows(ThreadPool& pool, PackedMatrix& matrix, int64_t first_row, const StoredMatrix& source,
              int64_t source_row, int64_t num_rows);

// Decodes one row exactly to out [cols]. This is the reference for all formats. The embedding also
// calls this function.
void DecodeRow(const PackedMatrix& matrix, int64_t row, float* out);

// Computes y[m, n] = sum over k of x[m, k] * w[n, k], plus bias[n] if `bias` is not null. x: [M, K]
// F32, BF16 or I8; w: [N, K]; y: [M, N] F32, row stride `y_stride` >= N. `maxima`: if requested,
// receives the block maxima of the rows of y. REQUIRES: x.cols == w.cols.
//
// BF16 inputs: products are exact for weights of every format (codes and, for groups of 4-bit
// elements, code * scale are exact in BF16). Sums are F32. Block scales multiply the sum of their
// block; row scales multiply the whole sum. (If the CPU's BF16 instruction flushes subnormal
// numbers to zero, weights below 2^-126, which only MXFP4 has, are zero.) F32 inputs are multiplied
// in F32 by the exact values of the weights. I8 inputs require I8 weights: exact integer sums,
// scaled once at the end. The order of the sum over k is the same for every M, thread count and
// position of the row in x.
void Linear(ThreadPool& pool, const PackedMatrix& w, const Activations& x, float* y,
            int64_t y_stride, const float* bias = nullptr, const RowMaxima& maxima = {});

// Reserves the scratch memory that Linear and GroupedLinear use in the calling thread. The memory
// grows on demand, so a thread that reserves it in advance allocates nothing later. It consists of:
// - 512 rows of BF16 activations of the widest matrix, unless all products have few rows;
// - some panels of BF16 weights for each thread of the pool;
// - with `orders_inputs`, 512 rows of permuted inputs: if weights have an input order, the inputs
//   in x are first permuted to that order, which then is also the order of the sum over k.
// `max_rows`: maximum rows of the product with any one matrix.
void ReserveLinearScratch(const ThreadPool& pool, int64_t max_rows, int64_t max_cols,
                          bool orders_inputs = false);
// Returns the bytes of the scratch memory of Linear and GroupedLinear on a pool of `num_threads`
// threads.
int64_t LinearScratchBytes(int num_threads, int64_t max_rows, int64_t max_cols,
                           bool orders_inputs = false);

}  // namespace sluice::kernels
