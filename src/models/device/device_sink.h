// Uploads matrices to a device, in the layout of its kernels.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/page_cache.h"
#include "device/device.h"
#include "device/uploader.h"
#include "kernels/cuda/device_kernels.h"
#include "models/device/device_weights.h"
#include "models/matrix_sink.h"
#include "models/model.h"

namespace sluice {

// Matrices must come in the order of the layout's list. Stored matrices are copied by the uploader;
// random ones are generated on the device, on `stream`. The caller must wait for both the uploader
// and the stream.
class DeviceSink final : public MatrixSink {
 public:
  struct Parts {
    Uploader& uploader;
    ThreadPool& threads;
    const device::DeviceKernels& kernels;
    DeviceStream& stream;
    const PageCacheDropper* dropper = nullptr;  // null: pages stay in the page cache
  };

  DeviceSink(const Parts& parts, const DeviceWeightLayout& layout, std::byte* memory)
      : parts_(parts), layout_(layout), memory_(memory) {}

  ThreadPool& pool() override { return parts_.threads; }
  Status Begin(const MatrixParameter& matrix, const DataFormat& format) override;
  Status AddStored(const StoredLinear& part, const RowRange& rows, bool decodes, int64_t first_row,
                   const Done& done, const NotFinite& not_finite) override;
  Status AddMade(const StoredMatrix& made, const RowRange& rows, int64_t first_row) override;
  Status AddRandom(uint64_t tensor_seed, const RowRange& rows, int64_t first_row,
                   const Done& done) override;

  // For each matrix of the list: its ranges of rows that have a single scale each. Empty if the
  // matrix has no row scales, if scales differ within a part, or if there are more than
  // kMostScaledParts parts.
  std::vector<std::vector<device::ScaledPart>> scaled_parts() const;

  // Copies a vector to its offset in the memory.
  Status Put(int64_t offset, std::span<const float> values);

 private:
  // A function that writes rows [begin, end) of a part, contiguously.
  using FillRows = std::function<void(int64_t begin, int64_t end, std::byte* out)>;

  // Checks that the rows that this rank holds are finite.
  Status CheckNumbers(const StoredMatrix& source, const RowRange& held,
                      const NotFinite& not_finite);
  Status PutStoredRows(const StoredLinear& part, const RowRange& held, int64_t first_row,
                       const Done& done);
  Status PutMadeRows(const StoredMatrix& source, const RowRange& held, int64_t first_row,
                     const FillRows& fill, const Done& done);
  Status PutInt4Rows(const StoredLinear& part, const RowRange& held, int64_t first_row,
                     const Done& done);
  Status PutInputOrder(const int32_t* order);
  Status PutScales(const StoredMatrix& source, const RowRange& held, int64_t first_row);
  Status PutInt4Scales(const StoredMatrix& source, const RowRange& held, int64_t first_row);
  Status PutNvF4Scales(const std::byte* scales, int64_t first_row, int64_t rows);
  Status PutBlockScales(const StoredMatrix& source, const RowRange& held, int64_t first_row);
  void NoteRowScale(float scale, int64_t rows);
  // Drops rows that have been copied and released from the page cache.
  void DropPages(const StoredLinear& part, const RowRange& held) const;

  Parts parts_;
  const DeviceWeightLayout& layout_;
  std::byte* memory_;
  size_t next_ = 0;
  const DeviceMatrixPlace* place_ = nullptr;  // place of the current matrix
  // For each matrix so far: runs of rows with the same scale. Stores at most one run more than is
  // reported.
  std::vector<std::vector<device::ScaledPart>> scaled_parts_;
  std::vector<std::byte> made_;
  // NVFP4 scales of the current matrix that have been received so far.
  std::vector<std::byte> nvf4_scales_;
};

// Fills the parameters of `list` in `memory`, which has the size of `layout`, and completes
// `layout`. `held`: the vectors of the list that have offsets in the layout. `checkpoint`: null for
// random weights.
Status FillDeviceWeights(const DeviceSink::Parts& parts, const ParameterList& list,
                         std::span<const VectorParameter> held,
                         const std::vector<std::vector<float>>& rope_tables,
                         const Checkpoint* checkpoint, const QuantizationScheme& scheme,
                         const ModelOptions& options, const LoadProgress& progress,
                         DeviceWeightLayout& layout, std::byte* memory);

}  // namespace sluice
