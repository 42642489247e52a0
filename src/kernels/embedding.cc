#include "kernels/embedding.h"

#include "base/check.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kPanelRows = PackedMatrix::kPanelRows;

void UnpackRow(const PackedMatrix& table, int64_t row, float* out) {
  const int64_t panel = row / kPanelRows;
  const int64_t lane = row % kPanelRows;
  const int64_t cols = table.cols;
  if (table.format.type == ElementType::kBF16) {
    const int64_t pairs = (cols + 1) / 2;
    const auto* data = reinterpret_cast<const BFloat16*>(table.data.data()) +
                       (panel * pairs * kPanelRows + lane) * 2;
    for (int64_t k = 0; k < cols; ++k) out[k] = ToFloat(data[k / 2 * 2 * kPanelRows + k % 2]);
  } else {
    const auto* data =
        reinterpret_cast<const float*>(table.data.data()) + panel * cols * kPanelRows + lane;
    for (int64_t k = 0; k < cols; ++k) out[k] = data[k * kPanelRows];
  }
}

}  // namespace

void Embedding(ThreadPool& pool, const PackedMatrix& table, std::span<const int32_t> tokens,
               float* out) {
  pool.ParallelFor(static_cast<int64_t>(tokens.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t token = tokens[static_cast<size_t>(i)];
      CHECK(token >= 0 && token < table.rows, "token {} is outside the table of {}", token,
            table.rows);
      UnpackRow(table, token, out + i * table.cols);
    }
  });
}

}  // namespace sluice::kernels
