// Rows of plain weights rounded to a narrow format, for a few of them at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/encode_rows.h"
#include "tensor/stored_matrix.h"

namespace sluice {

// Thread safety: one thread at a time.
class RoundedRows {
 public:
  // REQUIRES: the encoding has no scale of a whole tensor.
  explicit RoundedRows(const Encoding& encoding) : encoding_(encoding) {}

  // Rows [first_row, first_row + rows) of `source` in the encoding's format; valid until the
  // next call. REQUIRES: a block of the format begins at first_row.
  StoredMatrix Round(ThreadPool& pool, const StoredMatrix& source, int64_t first_row, int64_t rows);

  // Whether the values that the last call rounded were all finite.
  bool are_finite() const { return are_finite_; }

 private:
  const Encoding& encoding_;
  std::vector<float> values_;
  std::vector<std::byte> codes_, scales_;
  bool are_finite_ = true;
};

}  // namespace sluice
