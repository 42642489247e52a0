// Rounds unquantized weights to a narrow format, a few rows at a time.
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
  // REQUIRES: the encoding has no per-tensor scale.
  explicit RoundedRows(const Encoding& encoding) : encoding_(encoding) {}

  // Returns rows [first_row, first_row + rows) of `source` in the encoding's format. Valid until
  // the next call. REQUIRES: first_row is the first row of a block of the format.
  StoredMatrix Round(ThreadPool& pool, const StoredMatrix& source, int64_t first_row, int64_t rows);

  // Returns whether all values of the last call were finite before rounding.
  bool are_finite() const { return are_finite_; }

 private:
  const Encoding& encoding_;
  std::vector<float> values_;
  std::vector<std::byte> codes_, scales_;
  bool are_finite_ = true;
};

}  // namespace sluice
