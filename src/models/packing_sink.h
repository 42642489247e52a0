// Packs matrices for the CPU into their parameters' targets.
#pragma once

#include "base/thread_pool.h"
#include "models/dummy_rows.h"
#include "models/matrix_sink.h"

namespace sluice {

class PackingSink final : public MatrixSink {
 public:
  explicit PackingSink(ThreadPool& pool) : pool_(pool) {}

  ThreadPool& pool() override { return pool_; }
  Status Begin(const MatrixParameter& matrix, const DataFormat& format) override;
  Status AddStored(const StoredLinear& part, const RowRange& rows, bool decodes, int64_t first_row,
                   const Done& done, const NotFinite& not_finite) override;
  Status AddMade(const StoredMatrix& made, const RowRange& rows, int64_t first_row) override;
  Status AddRandom(uint64_t tensor_seed, const RowRange& rows, int64_t first_row,
                   const Done& done) override;

 private:
  ThreadPool& pool_;
  kernels::PackedMatrix* target_ = nullptr;  // target of the current matrix
};

}  // namespace sluice
