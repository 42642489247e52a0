// Random parameters for --load-format dummy: any model's shape can be run and measured without its
// weights.
#include <algorithm>
#include <cmath>

#include "kernels/linear.h"
#include "models/weight_loader.h"

namespace sluice {
namespace {

constexpr int64_t kChunkBytes = int64_t{8} << 20;
// Uniform 16-bit integers have this standard deviation.
constexpr double kUniformDeviation = 32768 / 1.7320508075688772;

// The finalizer of SplitMix64: neighbouring counters give unrelated numbers.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t SeedOf(std::string_view name, uint64_t seed) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return Mix(hash ^ Mix(seed));
}

float Convert(float value, float) {
  return value;
}
BFloat16 Convert(float value, BFloat16) {
  return ToBFloat16(value);
}

// Row `row` of a tensor: each 64-bit number gives four elements.
template <typename T>
void FillRow(uint64_t tensor_seed, int64_t row, float scale, int64_t cols, T* out) {
  const uint64_t row_seed = Mix(tensor_seed + static_cast<uint64_t>(row));
  for (int64_t k = 0; k < cols; k += 4) {
    uint64_t bits = Mix(row_seed + static_cast<uint64_t>(k));
    const int64_t end = std::min<int64_t>(cols, k + 4);
    for (int64_t i = k; i < end; ++i, bits >>= 16) {
      out[i] = Convert(static_cast<float>(static_cast<int16_t>(bits & 0xFFFF)) * scale, T{});
    }
  }
}

template <typename T>
void FillMatrix(ThreadPool& pool, const MatrixParameter& matrix, uint64_t seed, ElementType type,
                std::vector<std::byte>& scratch, const std::function<void(int64_t)>& done) {
  const float scale =
      static_cast<float>(1 / std::sqrt(static_cast<double>(matrix.cols)) / kUniformDeviation);
  const int64_t row_bytes = matrix.cols * static_cast<int64_t>(sizeof(T));
  const int64_t chunk_rows =
      std::max<int64_t>(1, kChunkBytes / row_bytes / kernels::PackedMatrix::kPanelRows) *
      kernels::PackedMatrix::kPanelRows;
  int64_t first_row = 0;
  for (const ParameterPart& part : matrix.parts) {
    const uint64_t tensor_seed = SeedOf(part.name, seed);
    for (int64_t start = 0; start < part.rows; start += chunk_rows) {
      const int64_t rows = std::min(chunk_rows, part.rows - start);
      scratch.resize(std::max(scratch.size(), static_cast<size_t>(rows * row_bytes)));
      T* chunk = reinterpret_cast<T*>(scratch.data());
      pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          FillRow(tensor_seed, start + row, scale, matrix.cols, chunk + row * matrix.cols);
        }
      });
      kernels::PackRows(pool, *matrix.target, first_row + start,
                        PlainMatrix(chunk, type, rows, matrix.cols), 0, rows);
      done(rows * row_bytes);
    }
    first_row += part.rows;
  }
}

}  // namespace

Status FillDummyParameters(ThreadPool& pool, const ParameterList& list, uint64_t seed,
                           ElementType compute_type, ElementType stored_type,
                           const LoadProgress& progress) {
  const DataFormat format{.type = PackedType(compute_type, stored_type)};
  int64_t total = 0, so_far = 0;
  for (const MatrixParameter& matrix : list.matrices)
    total += matrix.rows() * matrix.cols * BitsPerElement(format.type) / 8;
  const auto done = [&](int64_t bytes) {
    so_far += bytes;
    if (progress) progress(so_far, total);
  };
  std::vector<std::byte> scratch;
  for (const MatrixParameter& matrix : list.matrices) {
    ASSIGN_OR_RETURN(*matrix.target, kernels::AllocatePacked(format, matrix.rows(), matrix.cols,
                                                             matrix.parts.front().name.c_str()));
    if (format.type == ElementType::kBF16) {
      FillMatrix<BFloat16>(pool, matrix, seed, format.type, scratch, done);
    } else {
      FillMatrix<float>(pool, matrix, seed, format.type, scratch, done);
    }
  }
  constexpr float kBiasDeviation = 0.02f;
  for (const VectorParameter& vector : list.vectors) {
    vector.target->assign(static_cast<size_t>(vector.rows()), 1.0f);
    if (vector.kind != VectorParameter::Kind::kBias) continue;
    const float scale = kBiasDeviation / static_cast<float>(kUniformDeviation);
    FillRow(SeedOf(vector.parts.front().name, seed), 0, scale, vector.rows(),
            vector.target->data());
  }
  return {};
}

}  // namespace sluice
