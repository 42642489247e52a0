#include "models/packing_sink.h"

#include <algorithm>
#include <vector>

#include "kernels/linear.h"

namespace sluice {
namespace {

// Maximum bytes of a tensor that are packed between two progress calls. After each, the pages of
// these bytes are released.
constexpr int64_t kChunkBytes = int64_t{32} << 20;

constexpr int64_t kRandomChunkBytes = int64_t{8} << 20;

// Returns the number of rows in a chunk, a multiple of the panel height.
int64_t ChunkRows(int64_t row_bytes) {
  return std::max<int64_t>(
             1, kChunkBytes / std::max<int64_t>(row_bytes, 1) / kernels::PackedMatrix::kPanelRows) *
         kernels::PackedMatrix::kPanelRows;
}

}  // namespace

Status PackingSink::Begin(const MatrixParameter& matrix, const DataFormat& format) {
  target_ = matrix.target;
  ASSIGN_OR_RETURN(*target_, kernels::AllocatePacked(format, matrix.rows(), matrix.cols,
                                                     matrix.parts.front().name.c_str()));
  return {};
}

Status PackingSink::AddStored(const StoredLinear& part, const RowRange& held, bool decodes,
                              int64_t first_row, const Done& done, const NotFinite& not_finite) {
  const StoredMatrix& source = part.matrix;
  const int64_t row_bytes = source.cols * BitsPerElement(source.format.type) / 8;
  const int64_t chunk_rows = ChunkRows(decodes ? source.cols * 4 : row_bytes);
  std::vector<float> values;
  for (int64_t row = held.begin; row < held.end; row += chunk_rows) {
    const int64_t rows = std::min(chunk_rows, held.end - row);
    const int64_t target_row = first_row + row - held.begin;
    bool finite = true;
    if (decodes) {
      values.resize(static_cast<size_t>(rows * source.cols));
      pool_.ParallelFor(rows, 1, [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i)
          DecodeStoredRow(source, row + i, values.data() + i * source.cols);
      });
      finite = kernels::PackRows(pool_, *target_, target_row,
                                 PlainMatrix(values.data(), ElementType::kF32, rows, source.cols),
                                 0, rows);
    } else {
      finite = kernels::PackRows(pool_, *target_, target_row, source, row, rows);
    }
    if (!finite) RETURN_IF_ERROR(not_finite(row, row + rows));
    if (!source.transposed) part.ReleaseRows(row, rows);
    done(rows * row_bytes);
  }
  if (source.transposed) part.ReleaseRows(0, source.rows);
  if (source.scales == nullptr) return {};
  const StoredTensor& scales = *part.tensors[1];
  scales.Release(static_cast<uint64_t>(source.scales - scales.bytes().data()),
                 static_cast<uint64_t>(ScaleBytes(source)));
  done(ScaleBytes(source));
  if (source.zero_points != nullptr) {
    const StoredTensor& zeros = *part.tensors[2];
    zeros.Release(0, zeros.bytes().size());
  }
  return {};
}

Status PackingSink::AddMade(const StoredMatrix& made, const RowRange& rows, int64_t first_row) {
  kernels::PackRows(pool_, *target_, first_row, made, rows.begin, rows.size());
  return {};
}

Status PackingSink::AddRandom(uint64_t tensor_seed, const RowRange& rows, int64_t first_row,
                              const Done& done) {
  RandomRows random(target_->format, target_->cols);
  // Chunks consist of whole panels and whole blocks.
  const int64_t unit =
      std::max<int64_t>(kernels::PackedMatrix::kPanelRows, target_->format.block_rows);
  const int64_t chunk_rows =
      std::max<int64_t>(1, kRandomChunkBytes / random.row_bytes() / unit) * unit;
  for (int64_t start = rows.begin; start < rows.end; start += chunk_rows) {
    const int64_t count = std::min(chunk_rows, rows.end - start);
    const StoredMatrix chunk = random.Fill(pool_, tensor_seed, start, count);
    kernels::PackRows(pool_, *target_, first_row + start - rows.begin, chunk, 0, count);
    done(count * random.row_bytes());
  }
  return {};
}

}  // namespace sluice
