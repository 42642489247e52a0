// Receives a decoder's matrices during loading. Implementations pack them for the CPU, or copy them
// to a device.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/scheme.h"
#include "models/weights.h"
#include "tensor/data_format.h"

namespace sluice {

// Receives one matrix at a time, and its parts from top to bottom. Thread safety: one thread at a
// time.
class MatrixSink {
 public:
  // Receives the bytes that were read from the checkpoint, or generated, since the last call.
  using Done = std::function<void(int64_t bytes)>;
  // Called for rows [begin, end) of a part that have non-finite values, while their pages are
  // mapped. An error ends the loading.
  using NotFinite = std::function<Status(int64_t begin, int64_t end)>;

  virtual ~MatrixSink() = default;

  // Returns the pool whose threads prepare the rows.
  virtual ThreadPool& pool() = 0;

  // Begins the matrix to which the next parts belong; `format`: its format (PackedFormat).
  virtual Status Begin(const MatrixParameter& matrix, const DataFormat& format) = 0;
  // Sets the matrix's rows from `first_row` on to `rows` of the part in the mapped file. The part's
  // pages are then released. If `decodes`, stores the part's values instead of its codes.
  virtual Status AddStored(const StoredLinear& part, const RowRange& rows, bool decodes,
                           int64_t first_row, const Done& done, const NotFinite& not_finite) = 0;
  // Like AddStored, for `rows` of a matrix that the caller has converted to the packed format. The
  // caller may change it afterwards.
  virtual Status AddMade(const StoredMatrix& made, const RowRange& rows, int64_t first_row) = 0;
  // Like AddStored, for the random tensor with this seed (dummy_rows.h).
  virtual Status AddRandom(uint64_t tensor_seed, const RowRange& rows, int64_t first_row,
                           const Done& done) = 0;
};

}  // namespace sluice
