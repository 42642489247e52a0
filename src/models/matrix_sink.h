// Where a decoder's matrices go while they are loaded: packed for the CPU, or to a device.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/scheme.h"
#include "models/weights.h"
#include "tensor/data_format.h"

namespace sluice {

// Takes one matrix after the other, and of each the parts from top to bottom. Thread safety: one
// thread at a time.
class MatrixSink {
 public:
  // Progress: bytes of the checkpoint that were read, or generated, since the last call.
  using Done = std::function<void(int64_t bytes)>;
  // Called for rows [begin, end) of a part whose values are not all finite, while its pages are
  // mapped. An error ends the loading.
  using NotFinite = std::function<Status(int64_t begin, int64_t end)>;

  virtual ~MatrixSink() = default;

  // What prepares the rows.
  virtual ThreadPool& pool() = 0;

  // The matrix that the next parts belong to, and the format that they make together
  // (PackedFormat).
  virtual Status Begin(const MatrixParameter& matrix, const DataFormat& format) = 0;
  // Its rows from `first_row` on, which are `rows` of the part in the mapped file, whose pages are
  // given back. Where `decodes`, the part's values are taken instead of its codes.
  virtual Status AddStored(const StoredLinear& part, const RowRange& rows, bool decodes,
                           int64_t first_row, const Done& done, const NotFinite& not_finite) = 0;
  // The same of `rows` of a matrix that the caller made in the packed format and may change
  // afterwards.
  virtual Status AddMade(const StoredMatrix& made, const RowRange& rows, int64_t first_row) = 0;
  // The same of the random tensor of this seed (dummy_rows.h).
  virtual Status AddRandom(uint64_t tensor_seed, const RowRange& rows, int64_t first_row,
                           const Done& done) = 0;
};

}  // namespace sluice
