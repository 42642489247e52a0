// lora: what low-rank adapters add to the results of a linear layer, or of an embedding, with rows
// of several adapters in one step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/matrix.h"
#include "tensor/element_type.h"

namespace sluice::kernels {

// Ranks are computed in tiles of so many; the last is filled up with zeros.
inline constexpr int64_t kLoraTile = 16;

// The factors of one adapter for one module, A [rank, cols] and B [rows, rank], in BF16 or F32 and
// packed by the functions below. Ownership: refers to memory of somebody else.
struct LoraFactors {
  const void* a = nullptr;
  const void* b = nullptr;
  int64_t rank = 0;  // 0: the adapter leaves the module as it is
  float scale = 0;
  // The module's results are the columns [first_col, first_col + rows) of a row of y: a layer may
  // hold several modules.
  int64_t first_col = 0;
  int64_t rows = 0;
};

// The rows of a step that one adapter changes, ascending, and its factors for the modules of one
// layer.
struct LoraGroup {
  std::span<const int32_t> rows;
  std::span<const LoraFactors> modules;
};

// Bytes of A and of B in `type`.
int64_t LoraABytes(int64_t rank, int64_t cols, ElementType type);
int64_t LoraBBytes(int64_t rank, int64_t rows, ElementType type);
// The bytes of an embedding's A.
int64_t LoraTableBytes(int64_t rank, int64_t vocab_size, ElementType type);

// From row-major numbers of a checkpoint, F32, F16 or BF16, which need not be aligned. `out` is
// written completely. Return whether all numbers are finite.
// a: [rank, cols] to [rank / 16][cols / 2][16][2]; in F32 [rank / 16][cols][16].
bool PackLoraA(const std::byte* a, ElementType stored, int64_t rank, int64_t cols, ElementType type,
               void* out);
// b: [rows, rank] to [rank / 2][rows][2]; in F32 [rank][rows].
bool PackLoraB(const std::byte* b, ElementType stored, int64_t rows, int64_t rank, ElementType type,
               void* out);
// Row by row, as it is stored: [rows, cols]. The factor A of devices.
bool PackLoraRows(const std::byte* a, ElementType stored, int64_t rows, int64_t cols,
                  ElementType type, void* out);
// a: [rank, vocab_size] to [vocab_size, rank]. So devices have B, too.
bool PackLoraTable(const std::byte* a, ElementType stored, int64_t rank, int64_t vocab_size,
                   ElementType type, void* out);

// F32 numbers of scratch memory that the functions below need for `rows` rows of modules whose
// ranks, each rounded up to kLoraTile, add up to `ranks`.
constexpr int64_t LoraScratchSize(int64_t rows, int64_t ranks) {
  return rows * ranks;
}

// y[m, first_col + n] += scale * (sum over j of b[n, j] * (sum over k of a[j, k] * x[m, k])) for
// each module of each group and each row m of the group, which is row m - first_row of `x` and `y`.
// x: F32 or BF16; sums in F32. The order of the sums is the same whatever else is in the step, for
// any number of threads. `type`: of the factors. y: F32, row stride `y_stride`.
void AddLora(ThreadPool& pool, const Activations& x, std::span<const LoraGroup> groups,
             ElementType type, int64_t first_row, float* scratch, float* y, int64_t y_stride);

// The same where x selects a column of A: y[m, n] += scale * (sum over j of b[n, j] * a[j,
// tokens[m]]). Each group has one module, whose `a` is a table.
void AddLoraEmbedding(ThreadPool& pool, std::span<const int32_t> tokens,
                      std::span<const LoraGroup> groups, ElementType type, float* scratch, float* y,
                      int64_t y_stride);

}  // namespace sluice::kernels
