// lora: adds the contribution of low-rank adapters to the results of a linear layer or of an
// embedding. A step may have rows of several adapters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/matrix.h"
#include "tensor/element_type.h"

namespace sluice::kernels {

// Ranks are computed in tiles of this size; the last tile is padded with zeros.
inline constexpr int64_t kLoraTile = 16;

// The factors of one adapter for one module, A [rank, cols] and B [rows, rank], in BF16 or F32 and
// packed by the functions below. Ownership: a view.
struct LoraFactors {
  const void* a = nullptr;
  const void* b = nullptr;
  int64_t rank = 0;  // 0: the adapter does not change the module
  float scale = 0;
  // The module's results are the columns [first_col, first_col + rows) of a row of y, because one
  // layer may combine several modules.
  int64_t first_col = 0;
  int64_t rows = 0;
};

// The rows of a step that use one adapter, in ascending order, and the adapter's factors for the
// modules of one layer.
struct LoraGroup {
  std::span<const int32_t> rows;
  std::span<const LoraFactors> modules;
};

// Return the bytes of A and of B in `type`.
int64_t LoraABytes(int64_t rank, int64_t cols, ElementType type);
int64_t LoraBBytes(int64_t rank, int64_t rows, ElementType type);
// Returns the bytes of an embedding's A.
int64_t LoraTableBytes(int64_t rank, int64_t vocab_size, ElementType type);

// The functions below pack row-major elements of a checkpoint (F32, F16 or BF16, possibly
// unaligned). `out` is written completely. Each returns whether all elements are finite. PackLoraA
// packs a [rank, cols] to [rank / 16][cols / 2][16][2]; in F32 [rank / 16][cols][16].
bool PackLoraA(const std::byte* a, ElementType stored, int64_t rank, int64_t cols, ElementType type,
               void* out);
// Packs b [rows, rank] to [rank / 2][rows][2]; in F32 [rank][rows].
bool PackLoraB(const std::byte* b, ElementType stored, int64_t rows, int64_t rank, ElementType type,
               void* out);
// Packs [rows, cols] in row-major order: the layout of A on devices.
bool PackLoraRows(const std::byte* a, ElementType stored, int64_t rows, int64_t cols,
                  ElementType type, void* out);
// Packs a [rank, vocab_size] to [vocab_size, rank]. Also used for devices to pack B [rows, rank] to
// [rank, rows].
bool PackLoraTable(const std::byte* a, ElementType stored, int64_t rank, int64_t vocab_size,
                   ElementType type, void* out);

// Returns the number of F32 scratch elements that the functions below need for `rows` rows.
// `ranks`: the sum of the modules' ranks, each rounded up to kLoraTile.
constexpr int64_t LoraScratchSize(int64_t rows, int64_t ranks) {
  return rows * ranks;
}

// Computes y[m, first_col + n] += scale * (sum over j of b[n, j] * (sum over k of a[j, k] * x[m,
// k])) for each module of each group and each row m of the group, which is row m - first_row of `x`
// and `y`. x: F32 or BF16; sums in F32. The order of the sums does not depend on the rest of the
// step or on the number of threads. `type`: type of the factors. y: F32, row stride `y_stride`.
void AddLora(ThreadPool& pool, const Activations& x, std::span<const LoraGroup> groups,
             ElementType type, int64_t first_row, float* scratch, float* y, int64_t y_stride);

// Like AddLora, for an embedding, where a token selects a column of A: y[m, n] += scale * (sum over
// j of b[n, j] * a[j, tokens[m]]). Each group has one module, whose `a` is a table (PackLoraTable).
void AddLoraEmbedding(ThreadPool& pool, std::span<const int32_t> tokens,
                      std::span<const LoraGroup> groups, ElementType type, float* scratch, float* y,
                      int64_t y_stride);

}  // namespace sluice::kernels
