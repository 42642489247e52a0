#include "kernels/lora.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/integer.h"
#include "kernels/vector_kernel.h"
#include "tensor/bfloat16.h"
#include "tensor/stored_number.h"

namespace sluice::kernels {

namespace reference {

// Reads element (row, col) of [pairs][width][2] BF16 or [2 * pairs][width] F32.
float PairedNumber(const void* data, bool bf16, int64_t width, int64_t row, int64_t col) {
  if (!bf16) return static_cast<const float*>(data)[row * width + col];
  return ToFloat(static_cast<const BFloat16*>(data)[(row / 2 * width + col) * 2 + row % 2]);
}

void LoraShrinkTile(const float* x, int64_t rows, int64_t x_stride, int64_t pairs, const void* a,
                    bool bf16, float* h, int64_t h_stride) {
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t j = 0; j < kLoraTile; ++j) {
      float even = h[m * h_stride + j], odd = 0;
      for (int64_t k = 0; k < 2 * pairs; ++k)
        (k % 2 == 0 ? even : odd) += x[m * x_stride + k] * PairedNumber(a, bf16, kLoraTile, k, j);
      h[m * h_stride + j] = even + odd;
    }
  }
}

void LoraExpandTile(const float* h, int64_t h_stride, int64_t rows, int64_t pairs, const void* b,
                    bool bf16, int64_t b_width, int64_t cols, float scale, float* const* y) {
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < cols; ++n) {
      float even = 0, odd = 0;
      for (int64_t j = 0; j < 2 * pairs; ++j)
        (j % 2 == 0 ? even : odd) += h[m * h_stride + j] * PairedNumber(b, bf16, b_width, j, n);
      y[m][n] += scale * (even + odd);
    }
  }
}

}  // namespace reference

SLUICE_VECTOR_KERNEL(LoraShrinkTile);
SLUICE_VECTOR_KERNEL(LoraExpandTile);

namespace {

constexpr int64_t kLoraRows = 4;      // rows that share a pass over the factors
constexpr int64_t kLoraInputs = 256;  // inputs converted to F32 at a time; even
constexpr int64_t kLoraColumns = 256;
// Rows per unit of work. The number is so small that a long prompt keeps all threads busy.
constexpr int64_t kLoraUnitRows = 64;

int64_t LoraTiles(int64_t count, int64_t tile) {
  return CeilDiv(count, tile);
}

int64_t PaddedRank(int64_t rank) {
  return RoundUp(rank, kLoraTile);
}

bool IsBf16Factor(ElementType type) {
  CHECK(type == ElementType::kF32 || type == ElementType::kBF16, "factors are F32 or BF16, not {}",
        ElementTypeName(type));
  return type == ElementType::kBF16;
}

// Converts elements of a row to F32.
void WidenRow(const std::byte* stored, ElementType type, int64_t first, std::span<float> out) {
  // For rank 0 the data may be null, which memcpy does not allow even for zero bytes.
  if (out.empty()) return;
  if (type == ElementType::kF32) {
    std::memcpy(out.data(), stored + first * 4, out.size_bytes());
    return;
  }
  if (type == ElementType::kBF16) {
    for (size_t i = 0; i < out.size(); ++i) {
      BFloat16 number;
      std::memcpy(&number, stored + (first + static_cast<int64_t>(i)) * 2, sizeof(number));
      out[i] = ToFloat(number);
    }
    return;
  }
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = StoredNumber(stored, type, first + static_cast<int64_t>(i));
}

bool AllAreFinite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

void StoreFactor(void* out, bool bf16, int64_t index, float value) {
  if (bf16)
    static_cast<BFloat16*>(out)[index] = ToBFloat16(value);
  else
    static_cast<float*>(out)[index] = value;
}

// Returns the index of element (row, col) of a paired matrix with `width` columns.
int64_t PairedIndex(bool bf16, int64_t width, int64_t row, int64_t col) {
  return bf16 ? (row / 2 * width + col) * 2 + row % 2 : row * width + col;
}

// Copies columns [begin, begin + count) of a row as F32.
void CopyInputs(const Activations& x, int64_t row, int64_t begin, int64_t count, float* out) {
  if (x.type == ElementType::kF32) {
    std::memcpy(out, x.f32() + row * x.stride + begin, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const BFloat16* from = x.bf16() + row * x.stride + begin;
  for (int64_t i = 0; i < count; ++i) out[i] = ToFloat(from[i]);
}

// Rows of a group that are computed together, for one of the group's modules.
struct ModuleRows {
  std::span<const int32_t> rows;
  const LoraFactors& module;
  int64_t first_h = 0;  // the module's first column in a row of h (the results of A)
};

// Calls body(work, tile) for units [begin, end) of the work of all groups. Each module's rows are
// divided into blocks of count_tiles(module) tiles each.
template <typename CountTiles, typename Body>
void ForUnits(std::span<const LoraGroup> groups, const CountTiles& count_tiles, int64_t begin,
              int64_t end, const Body& body) {
  int64_t unit = 0;
  for (const LoraGroup& group : groups) {
    const auto num_rows = static_cast<int64_t>(group.rows.size());
    int64_t first_h = 0;
    for (const LoraFactors& module : group.modules) {
      const int64_t tiles = count_tiles(module), blocks = LoraTiles(num_rows, kLoraUnitRows);
      const int64_t last = unit + tiles * blocks;
      for (int64_t i = std::max(unit, begin); i < std::min(last, end); ++i) {
        const int64_t block = (i - unit) / tiles, row = block * kLoraUnitRows;
        const auto count = static_cast<size_t>(std::min(kLoraUnitRows, num_rows - row));
        body(ModuleRows{group.rows.subspan(static_cast<size_t>(row), count), module, first_h},
             (i - unit) % tiles);
      }
      unit = last;
      first_h += PaddedRank(module.rank);
    }
  }
}

template <typename CountTiles>
int64_t CountUnits(std::span<const LoraGroup> groups, const CountTiles& count_tiles) {
  int64_t units = 0;
  for (const LoraGroup& group : groups) {
    for (const LoraFactors& module : group.modules)
      units +=
          count_tiles(module) * LoraTiles(static_cast<int64_t>(group.rows.size()), kLoraUnitRows);
  }
  return units;
}

int64_t WidestRanks(std::span<const LoraGroup> groups) {
  int64_t widest = 0;
  for (const LoraGroup& group : groups) {
    int64_t ranks = 0;
    for (const LoraFactors& module : group.modules) ranks += PaddedRank(module.rank);
    widest = std::max(widest, ranks);
  }
  return widest;
}

// Computes h = A x for the rows of `work` and one tile of kLoraTile ranks.
void Shrink(const Activations& x, const ModuleRows& work, int64_t tile, bool bf16,
            int64_t first_row, float* h, int64_t h_stride) {
  const int64_t pairs = LoraTiles(x.cols, 2);
  const int64_t tile_bytes = 2 * pairs * kLoraTile * (bf16 ? 2 : 4);
  const auto* a = static_cast<const std::byte*>(work.module.a) + tile * tile_bytes;
  const int64_t pair_bytes = 2 * kLoraTile * (bf16 ? 2 : 4);
  const auto num_rows = static_cast<int64_t>(work.rows.size());
  alignas(64) float inputs[kLoraRows * kLoraInputs];
  for (int64_t first = 0; first < num_rows; first += kLoraRows) {
    const int64_t count = std::min(kLoraRows, num_rows - first);
    alignas(64) float sums[kLoraRows * kLoraTile] = {};
    for (int64_t k = 0; k < x.cols; k += kLoraInputs) {
      const int64_t width = std::min(kLoraInputs, x.cols - k);
      for (int64_t m = 0; m < count; ++m) {
        float* row = inputs + m * kLoraInputs;
        CopyInputs(x, work.rows[static_cast<size_t>(first + m)] - first_row, k, width, row);
        if (width % 2 != 0) row[width] = 0;
      }
      kLoraShrinkTile(inputs, count, kLoraInputs, LoraTiles(width, 2), a + k / 2 * pair_bytes, bf16,
                      sums, kLoraTile);
    }
    for (int64_t m = 0; m < count; ++m) {
      const int64_t row = work.rows[static_cast<size_t>(first + m)] - first_row;
      std::memcpy(h + row * h_stride + work.first_h + tile * kLoraTile, sums + m * kLoraTile,
                  kLoraTile * sizeof(float));
    }
  }
}

// Adds B h to y for the rows of `work` and one tile of the module's columns.
void Expand(const ModuleRows& work, int64_t tile, bool bf16, int64_t first_row, const float* h,
            int64_t h_stride, float* y, int64_t y_stride) {
  const LoraFactors& module = work.module;
  const int64_t begin = tile * kLoraColumns;
  const int64_t cols = std::min(kLoraColumns, module.rows - begin);
  // A pair of BF16 numbers takes as many bytes as one F32 number.
  const auto* b = static_cast<const std::byte*>(module.b) + begin * 4;
  const auto num_rows = static_cast<int64_t>(work.rows.size());
  for (int64_t first = 0; first < num_rows; first += kLoraRows) {
    const int64_t count = std::min(kLoraRows, num_rows - first);
    // Gathers the rows of h, because rows of a group need not be consecutive.
    constexpr int64_t kRanks = 512;
    float* results[kLoraRows];
    for (int64_t m = 0; m < count; ++m) {
      const int64_t row = work.rows[static_cast<size_t>(first + m)] - first_row;
      results[m] = y + row * y_stride + module.first_col + begin;
    }
    alignas(64) float ranks[kLoraRows * kRanks];
    const int64_t padded = RoundUp(module.rank, 2);
    CHECK_LE(padded, kRanks);
    for (int64_t m = 0; m < count; ++m) {
      const int64_t row = work.rows[static_cast<size_t>(first + m)] - first_row;
      std::memcpy(ranks + m * padded, h + row * h_stride + work.first_h,
                  static_cast<size_t>(padded) * sizeof(float));
    }
    kLoraExpandTile(ranks, padded, count, padded / 2, b, bf16, module.rows, cols, module.scale,
                    results);
  }
}

void ExpandAll(ThreadPool& pool, std::span<const LoraGroup> groups, bool bf16, int64_t first_row,
               const float* h, int64_t h_stride, float* y, int64_t y_stride) {
  const auto tiles = [](const LoraFactors& module) {
    return module.rank == 0 ? int64_t{0} : LoraTiles(module.rows, kLoraColumns);
  };
  pool.ParallelFor(CountUnits(groups, tiles), 1, [&](int64_t begin, int64_t end) {
    ForUnits(groups, tiles, begin, end, [&](const ModuleRows& work, int64_t tile) {
      Expand(work, tile, bf16, first_row, h, h_stride, y, y_stride);
    });
  });
}

}  // namespace

int64_t LoraABytes(int64_t rank, int64_t cols, ElementType type) {
  return PaddedRank(rank) * RoundUp(cols, 2) * (IsBf16Factor(type) ? 2 : 4);
}
int64_t LoraBBytes(int64_t rank, int64_t rows, ElementType type) {
  return RoundUp(rank, 2) * rows * (IsBf16Factor(type) ? 2 : 4);
}
int64_t LoraTableBytes(int64_t rank, int64_t vocab_size, ElementType type) {
  return rank * vocab_size * (IsBf16Factor(type) ? 2 : 4);
}

bool PackLoraA(const std::byte* a, ElementType stored, int64_t rank, int64_t cols, ElementType type,
               void* out) {
  const bool bf16 = IsBf16Factor(type);
  std::memset(out, 0, static_cast<size_t>(LoraABytes(rank, cols, type)));
  std::vector<float> row(static_cast<size_t>(cols));
  bool finite = true;
  for (int64_t j = 0; j < rank; ++j) {
    WidenRow(a, stored, j * cols, row);
    finite = finite && AllAreFinite(row);
    const int64_t tile = j / kLoraTile * kLoraTile * RoundUp(cols, 2);
    for (int64_t k = 0; k < cols; ++k) {
      StoreFactor(out, bf16, tile + PairedIndex(bf16, kLoraTile, k, j % kLoraTile),
                  row[static_cast<size_t>(k)]);
    }
  }
  return finite;
}

bool PackLoraB(const std::byte* b, ElementType stored, int64_t rows, int64_t rank, ElementType type,
               void* out) {
  const bool bf16 = IsBf16Factor(type);
  if (rank % 2 != 0) std::memset(out, 0, static_cast<size_t>(LoraBBytes(rank, rows, type)));
  std::vector<float> row(static_cast<size_t>(rank));
  bool finite = true;
  for (int64_t n = 0; n < rows; ++n) {
    WidenRow(b, stored, n * rank, row);
    finite = finite && AllAreFinite(row);
    for (int64_t j = 0; j < rank; ++j)
      StoreFactor(out, bf16, PairedIndex(bf16, rows, j, n), row[static_cast<size_t>(j)]);
  }
  return finite;
}

bool PackLoraRows(const std::byte* a, ElementType stored, int64_t rows, int64_t cols,
                  ElementType type, void* out) {
  const bool bf16 = IsBf16Factor(type);
  std::vector<float> row(static_cast<size_t>(cols));
  bool finite = true;
  for (int64_t j = 0; j < rows; ++j) {
    WidenRow(a, stored, j * cols, row);
    finite = finite && AllAreFinite(row);
    for (int64_t k = 0; k < cols; ++k)
      StoreFactor(out, bf16, j * cols + k, row[static_cast<size_t>(k)]);
  }
  return finite;
}

bool PackLoraTable(const std::byte* a, ElementType stored, int64_t rank, int64_t vocab_size,
                   ElementType type, void* out) {
  const bool bf16 = IsBf16Factor(type);
  std::vector<float> row(static_cast<size_t>(vocab_size));
  bool finite = true;
  for (int64_t j = 0; j < rank; ++j) {
    WidenRow(a, stored, j * vocab_size, row);
    finite = finite && AllAreFinite(row);
    for (int64_t token = 0; token < vocab_size; ++token)
      StoreFactor(out, bf16, token * rank + j, row[static_cast<size_t>(token)]);
  }
  return finite;
}

void AddLora(ThreadPool& pool, const Activations& x, std::span<const LoraGroup> groups,
             ElementType type, int64_t first_row, float* scratch, float* y, int64_t y_stride) {
  CHECK(x.type == ElementType::kF32 || x.type == ElementType::kBF16);
  const bool bf16 = IsBf16Factor(type);
  const int64_t h_stride = WidestRanks(groups);
  const auto tiles = [](const LoraFactors& module) { return LoraTiles(module.rank, kLoraTile); };
  pool.ParallelFor(CountUnits(groups, tiles), 1, [&](int64_t begin, int64_t end) {
    ForUnits(groups, tiles, begin, end, [&](const ModuleRows& work, int64_t tile) {
      Shrink(x, work, tile, bf16, first_row, scratch, h_stride);
    });
  });
  ExpandAll(pool, groups, bf16, first_row, scratch, h_stride, y, y_stride);
}

void AddLoraEmbedding(ThreadPool& pool, std::span<const int32_t> tokens,
                      std::span<const LoraGroup> groups, ElementType type, float* scratch, float* y,
                      int64_t y_stride) {
  const bool bf16 = IsBf16Factor(type);
  const int64_t h_stride = WidestRanks(groups);
  for (const LoraGroup& group : groups) {
    const LoraFactors& module = group.modules.front();
    for (const int32_t row : group.rows) {
      const int64_t first = tokens[static_cast<size_t>(row)] * module.rank;
      float* h = scratch + row * h_stride;
      for (int64_t j = 0; j < module.rank; ++j) {
        h[j] = bf16 ? ToFloat(static_cast<const BFloat16*>(module.a)[first + j])
                    : static_cast<const float*>(module.a)[first + j];
      }
      if (module.rank % 2 != 0) h[module.rank] = 0;
    }
  }
  ExpandAll(pool, groups, bf16, /*first_row=*/0, scratch, h_stride, y, y_stride);
}

}  // namespace sluice::kernels
