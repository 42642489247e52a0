#include "kernels/embedding.h"

#include "base/check.h"
#include "kernels/linear.h"

namespace sluice::kernels {
void Embedding(ThreadPool& pool, const PackedMatrix& table, std::span<const int32_t> tokens,
               float* out) {
  pool.ParallelFor(static_cast<int64_t>(tokens.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t token = tokens[static_cast<size_t>(i)];
      CHECK(token >= 0 && token < table.rows, "token {} is outside the table of {}", token,
            table.rows);
      DecodeRow(table, token, out + i * table.cols);
    }
  });
}

}  // namespace sluice::kernels
