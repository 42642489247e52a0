#include "models/rounded_rows.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace sluice {

StoredMatrix RoundedRows::Round(ThreadPool& pool, const StoredMatrix& source, int64_t first_row,
                                int64_t rows) {
  const int64_t cols = source.cols;
  StoredMatrix rounded{.format = encoding_.format, .rows = rows, .cols = cols};
  const int64_t row_bytes = cols * BitsPerElement(encoding_.format.type) / 8;
  const int64_t unit = std::max<int64_t>(1, encoding_.format.block_rows);
  const int64_t units = (rows + unit - 1) / unit;
  const int64_t unit_scale_bytes = ScaleBytes(rounded) / (rows == 0 ? 1 : units);
  values_.resize(std::max(values_.size(), static_cast<size_t>(rows * cols)));
  codes_.resize(std::max(codes_.size(), static_cast<size_t>(rows * row_bytes)));
  scales_.resize(std::max(scales_.size(), static_cast<size_t>(ScaleBytes(rounded))));
  std::atomic<bool> finite{true};
  pool.ParallelFor(units, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = i * unit, to = std::min(rows, from + unit);
      float* values = values_.data() + from * cols;
      for (int64_t row = from; row < to; ++row)
        DecodeStoredRow(source, first_row + row, values_.data() + row * cols);
      if (!std::all_of(values, values + (to - from) * cols, [](float x) { return x - x == 0; }))
        finite = false;
      EncodeRows(encoding_, GroupScales::kAmax, values, to - from, cols, /*tensor_scale=*/1,
                 codes_.data() + from * row_bytes, scales_.data() + i * unit_scale_bytes);
    }
  });
  are_finite_ = finite;
  rounded.data = codes_.data();
  rounded.scales = scales_.data();
  return rounded;
}

}  // namespace sluice
