#include "models/device/device_sink.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/integer.h"
#include "base/log.h"
#include "kernels/cuda/linear_shapes.h"
#include "kernels/cuda/nvf4_scales.h"
#include "models/device/device_options.h"
#include "models/dummy_rows.h"
#include "models/weight_loader.h"
#include "tensor/bfloat16.h"
#include "tensor/finite.h"
#include "tensor/stored_matrix.h"
#include "tensor/stored_number.h"

namespace sluice {
namespace {

using ScaleLayout = DataFormat::ScaleLayout;

// Maximum number of bytes of a file that are copied between two progress calls. After each, the
// pages of these bytes are released.
constexpr int64_t kStoredChunkBytes = int64_t{32} << 20;
// Maximum number of bytes of rows that the host converts at a time.
constexpr int64_t kMadeChunkBytes = int64_t{16} << 20;
// Number of rows of a transposed matrix that are processed together, so that their elements in one
// column fill whole cache lines.
constexpr int64_t kTransposedRows = 64;

float RowScaleOf(const StoredMatrix& source, int64_t row) {
  switch (source.format.scale_layout) {
    case ScaleLayout::kPerTensor:
      return StoredNumber(source.scales, source.format.scale_type, 0) * source.second_scale;
    case ScaleLayout::kPerRow:
      return StoredNumber(source.scales, source.format.scale_type, row) * source.second_scale;
    default: return source.second_scale;
  }
}

// Extracts rows [begin, end) of a matrix with `units` elements T per row, stored as [units, rows].
template <typename T>
void TransposeRows(const std::byte* data, int64_t rows, int64_t units, int64_t begin, int64_t end,
                   std::byte* out) {
  for (int64_t first = begin; first < end; first += kTransposedRows) {
    const int64_t last = std::min(end, first + kTransposedRows);
    for (int64_t unit = 0; unit < units; ++unit) {
      const std::byte* from = data + unit * rows * static_cast<int64_t>(sizeof(T));
      for (int64_t row = first; row < last; ++row) {
        std::memcpy(out + ((row - begin) * units + unit) * static_cast<int64_t>(sizeof(T)),
                    from + row * static_cast<int64_t>(sizeof(T)), sizeof(T));
      }
    }
  }
}

void DecodeRows(const StoredMatrix& source, int64_t begin, int64_t end, std::byte* out) {
  std::vector<float> values(static_cast<size_t>(source.cols));
  std::vector<BFloat16> rounded(values.size());
  for (int64_t row = begin; row < end; ++row) {
    DecodeStoredRow(source, row, values.data());
    std::transform(values.begin(), values.end(), rounded.begin(),
                   [](float value) { return ToBFloat16(value); });
    std::memcpy(out + (row - begin) * source.cols * 2, rounded.data(), rounded.size() * 2);
  }
}

// Extracts rows [begin, end) of INT4 codes, two per byte, with inputs in group order.
void PackInt4Rows(const StoredMatrix& source, int64_t begin, int64_t end, std::byte* out) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t i = 0; i < source.cols; i += 2, ++out) {
      const auto code = [&](int64_t column) {
        const int64_t input = source.input_order == nullptr ? column : source.input_order[column];
        return static_cast<unsigned>(Int4Code(source, row, input));
      };
      *out = static_cast<std::byte>(code(i) | code(i + 1) << 4);
    }
  }
}

// Extracts rows [begin, end) of I8 codes that are stored with an offset.
void TakeInt8Offset(const StoredMatrix& source, int64_t begin, int64_t end, std::byte* out) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t i = 0; i < source.cols; ++i, ++out)
      *out = static_cast<std::byte>(OffsetInt8Code(source, row, i));
  }
}

// Whether codes are packed along inputs and in order, as GPTQ (without act-order) and
// compressed-tensors store them.
bool HasWordsOfInputs(const StoredMatrix& source) {
  return source.input_order == nullptr && source.packing == Int4Packing::kInputs;
}

bool IsUnscaled(const DataFormat& format) {
  return format.scale_layout == ScaleLayout::kNone;
}

}  // namespace

Status DeviceSink::Begin(const MatrixParameter& matrix, const DataFormat& /*format*/) {
  place_ = &layout_.matrix(next_++);
  CHECK(place_->rows == matrix.rows() && place_->cols == matrix.cols);
  nvf4_scales_.clear();
  scaled_parts_.emplace_back();
  if (!place_->input_order) return {};
  // The identity order, used unless a part of the matrix has an input order.
  std::vector<int32_t> order(static_cast<size_t>(place_->cols));
  std::iota(order.begin(), order.end(), 0);
  return PutInputOrder(order.data());
}

Status DeviceSink::AddStored(const StoredLinear& part, const RowRange& held, bool /*decodes*/,
                             int64_t first_row, const Done& done, const NotFinite& not_finite) {
  const StoredMatrix& source = part.matrix;
  RETURN_IF_ERROR(CheckNumbers(source, held, not_finite));
  const bool plain = IsUnscaled(place_->format);
  const int64_t row_bytes = place_->row_bytes();
  if (plain && source.format.type != ElementType::kBF16) {
    RETURN_IF_ERROR(PutMadeRows(
        source, held, first_row,
        [&](int64_t begin, int64_t end, std::byte* out) { DecodeRows(source, begin, end, out); },
        done));
  } else if (source.format.type == ElementType::kInt4) {
    RETURN_IF_ERROR(PutInt4Rows(part, held, first_row, done));
  } else if (source.has_offset_codes) {
    RETURN_IF_ERROR(PutMadeRows(
        source, held, first_row,
        [&](int64_t begin, int64_t end, std::byte* out) {
          TakeInt8Offset(source, begin, end, out);
        },
        done));
  } else if (source.transposed) {
    RETURN_IF_ERROR(PutMadeRows(
        source, held, first_row,
        [&](int64_t begin, int64_t end, std::byte* out) {
          if (plain)
            TransposeRows<uint16_t>(source.data, source.rows, source.cols, begin, end, out);
          else
            TransposeRows<uint8_t>(source.data, source.rows, row_bytes, begin, end, out);
        },
        done));
  } else {
    RETURN_IF_ERROR(PutStoredRows(part, held, first_row, done));
  }
  part.ReleaseRows(held.begin, held.size());
  DropPages(part, held);
  if (source.scales == nullptr) return {};
  if (!plain) RETURN_IF_ERROR(PutScales(source, held, first_row));
  const StoredTensor& scales = *part.tensors[1];
  scales.Release(static_cast<uint64_t>(source.scales - scales.bytes().data()),
                 static_cast<uint64_t>(ScaleBytes(source)));
  if (parts_.dropper != nullptr) parts_.dropper->Drop(scales, 0, scales.bytes().size());
  done(ScaleBytes(source));
  return {};
}

void DeviceSink::DropPages(const StoredLinear& part, const RowRange& held) const {
  if (parts_.dropper == nullptr) return;
  const StoredMatrix& source = part.matrix;
  const StoredTensor& tensor = *part.tensors.front();
  const auto size = static_cast<uint64_t>(tensor.bytes().size());
  if (held.size() == source.rows) return parts_.dropper->Drop(tensor, 0, size);
  // The rows of a transposed matrix are spread over the whole file.
  if (source.transposed) return;
  const auto row_bytes =
      static_cast<uint64_t>(source.cols * BitsPerElement(source.format.type) / 8);
  const auto begin = static_cast<uint64_t>(source.data - tensor.bytes().data()) +
                     static_cast<uint64_t>(held.begin) * row_bytes;
  parts_.dropper->Drop(tensor, begin, static_cast<uint64_t>(held.size()) * row_bytes);
}

Status DeviceSink::CheckNumbers(const StoredMatrix& source, const RowRange& held,
                                const NotFinite& not_finite) {
  std::atomic<bool> finite{true};
  parts_.threads.ParallelFor(held.size(), kTransposedRows, [&](int64_t begin, int64_t end) {
    if (!RowsAreFinite(source, held.begin + begin, held.begin + end)) finite = false;
  });
  return finite ? Status() : not_finite(held.begin, held.end);
}

// Copies the bytes unchanged.
Status DeviceSink::PutStoredRows(const StoredLinear& part, const RowRange& held, int64_t first_row,
                                 const Done& done) {
  const StoredTensor& tensor = *part.tensors.front();
  const std::byte* const from = part.matrix.data + held.begin * place_->row_bytes();
  const auto begin = static_cast<uint64_t>(from - tensor.bytes().data());
  const int64_t total = held.size() * place_->row_bytes();
  std::byte* to = memory_ + place_->codes + first_row * place_->row_bytes();
  for (int64_t offset = 0; offset < total; offset += kStoredChunkBytes) {
    const int64_t bytes = std::min(kStoredChunkBytes, total - offset);
    RETURN_IF_ERROR(parts_.uploader.Copy(parts_.threads, to + offset, from + offset, bytes));
    tensor.Release(begin + static_cast<uint64_t>(offset), static_cast<uint64_t>(bytes));
    done(bytes);
  }
  return {};
}

Status DeviceSink::PutInt4Rows(const StoredLinear& part, const RowRange& held, int64_t first_row,
                               const Done& done) {
  const StoredMatrix& source = part.matrix;
  if (source.input_order != nullptr) RETURN_IF_ERROR(PutInputOrder(source.input_order));
  if (HasWordsOfInputs(source) && !source.transposed)
    return PutStoredRows(part, held, first_row, done);
  return PutMadeRows(
      source, held, first_row,
      [&](int64_t begin, int64_t end, std::byte* out) {
        if (HasWordsOfInputs(source))
          TransposeRows<uint32_t>(source.data, source.rows, source.cols / 8, begin, end, out);
        else
          PackInt4Rows(source, begin, end, out);
      },
      done);
}

Status DeviceSink::PutInputOrder(const int32_t* order) {
  CHECK(place_->input_order, "inputs in another order in a matrix without one");
  return parts_.uploader.Copy(parts_.threads, memory_ + *place_->input_order, order,
                              place_->cols * static_cast<int64_t>(sizeof(int32_t)));
}

Status DeviceSink::PutMadeRows(const StoredMatrix& source, const RowRange& held, int64_t first_row,
                               const FillRows& fill, const Done& done) {
  const int64_t row_bytes = place_->row_bytes();
  const int64_t chunk_rows = std::max<int64_t>(1, kMadeChunkBytes / row_bytes);
  const int64_t stored_row_bytes = source.cols * BitsPerElement(source.format.type) / 8;
  for (int64_t row = held.begin; row < held.end; row += chunk_rows) {
    const int64_t rows = std::min(chunk_rows, held.end - row);
    made_.resize(static_cast<size_t>(rows * row_bytes));
    parts_.threads.ParallelFor(rows, kTransposedRows, [&](int64_t begin, int64_t end) {
      fill(row + begin, row + end, made_.data() + begin * row_bytes);
    });
    const int64_t place_row = first_row + row - held.begin;
    RETURN_IF_ERROR(parts_.uploader.Copy(parts_.threads,
                                         memory_ + place_->codes + place_row * row_bytes,
                                         made_.data(), rows * row_bytes));
    done(rows * stored_row_bytes);
  }
  return {};
}

Status DeviceSink::PutScales(const StoredMatrix& source, const RowRange& held, int64_t first_row) {
  if (source.format.type == ElementType::kInt4) return PutInt4Scales(source, held, first_row);
  const int64_t rows = held.size();
  if (source.format.scale_layout == ScaleLayout::kPerBlock) {
    RETURN_IF_ERROR(PutBlockScales(source, held, first_row));
  } else if (source.format.scale_layout == ScaleLayout::kPerGroup) {
    const int64_t groups = place_->groups();
    std::byte* to = memory_ + *place_->group_scales + first_row * groups;
    const std::byte* from = source.scales + held.begin * groups;
    if (source.transposed) {
      made_.resize(static_cast<size_t>(rows * groups));
      TransposeRows<uint8_t>(source.scales, source.rows, groups, held.begin, held.end,
                             made_.data());
      from = made_.data();
    }
    if (place_->has_nvf4_scales())
      RETURN_IF_ERROR(PutNvF4Scales(from, first_row, rows));
    else
      RETURN_IF_ERROR(parts_.uploader.Copy(parts_.threads, to, from, rows * groups));
  }
  if (!place_->row_scales) return {};
  std::vector<float> scales(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row)
    scales[static_cast<size_t>(row)] = RowScaleOf(source, held.begin + row);
  for (const float scale : scales) NoteRowScale(scale, 1);
  return Put(*place_->row_scales + first_row * 4, scales);
}

// Writes one 32-bit word per row and group: scale and zero point.
Status DeviceSink::PutInt4Scales(const StoredMatrix& source, const RowRange& held,
                                 int64_t first_row) {
  const int64_t groups = place_->groups();
  std::vector<uint32_t> words(static_cast<size_t>(held.size() * groups));
  const bool is_grouped = source.format.scale_layout == ScaleLayout::kPerGroup;
  for (int64_t row = held.begin; row < held.end; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t index = source.transposed ? group * source.rows + row : row * groups + group;
      const float scale =
          is_grouped
              ? StoredNumber(source.scales, source.format.scale_type, index) * source.second_scale
              : RowScaleOf(source, row);
      words[static_cast<size_t>((row - held.begin) * groups + group)] =
          device::Int4ScaleWord(scale, Int4ZeroPoint(source, row, group));
    }
  }
  return parts_.uploader.Copy(parts_.threads,
                              memory_ + *place_->group_scales + first_row * groups * 4,
                              words.data(), held.size() * groups * 4);
}

// Writes scales in device order. If two parts of a matrix share a tile of rows, the tile is
// uploaded again with the second part.
Status DeviceSink::PutNvF4Scales(const std::byte* scales, int64_t first_row, int64_t rows) {
  constexpr int64_t kTileRows = device::kNvF4TileRows;
  const int64_t groups = place_->groups();
  nvf4_scales_.resize(static_cast<size_t>(place_->group_scale_bytes()));  // zeros
  parts_.threads.ParallelFor(rows, kTransposedRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::byte* to = nvf4_scales_.data() + device::NvF4ScaleRow(first_row + row, groups);
      for (int64_t group = 0; group < groups; ++group)
        to[device::NvF4ScaleGroup(group)] = scales[row * groups + group];
    }
  });
  const int64_t tile_rows_bytes = device::NvF4ScaleBytes(kTileRows, groups);
  const int64_t begin = first_row / kTileRows * tile_rows_bytes;
  const int64_t end = CeilDiv(first_row + rows, kTileRows) * tile_rows_bytes;
  return parts_.uploader.Copy(parts_.threads, memory_ + *place_->group_scales + begin,
                              nvf4_scales_.data() + begin, end - begin);
}

// Writes a row of scales for each of the device's blocks, which may be smaller than the
// checkpoint's.
Status DeviceSink::PutBlockScales(const StoredMatrix& source, const RowRange& held,
                                  int64_t first_row) {
  const int64_t groups = place_->groups(), block_rows = place_->block_rows;
  const int64_t stored_blocks = CeilDiv(source.rows, source.format.block_rows);
  CHECK(first_row % block_rows == 0 && held.begin % block_rows == 0,
        "blocks of {} rows, from row {} of {}", block_rows, held.begin, first_row);
  const int64_t blocks = CeilDiv(held.size(), block_rows);
  std::vector<float> scales(static_cast<size_t>(blocks * groups));
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t stored = (held.begin + block * block_rows) / source.format.block_rows;
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t index =
          source.transposed ? group * stored_blocks + stored : stored * groups + group;
      scales[static_cast<size_t>(block * groups + group)] =
          StoredNumber(source.scales, source.format.scale_type, index) * source.second_scale;
    }
  }
  return Put(*place_->group_scales + first_row / block_rows * groups * 4, scales);
}

void DeviceSink::NoteRowScale(float scale, int64_t rows) {
  std::vector<device::ScaledPart>& parts = scaled_parts_.back();
  if (parts.empty() || parts.back().scale != scale) {
    if (parts.size() > device::kMostScaledParts) return;
    parts.push_back({.rows = 0, .scale = scale});
  }
  parts.back().rows += rows;
}

std::vector<std::vector<device::ScaledPart>> DeviceSink::scaled_parts() const {
  std::vector<std::vector<device::ScaledPart>> all = scaled_parts_;
  for (auto& parts : all) {
    if (parts.size() > device::kMostScaledParts) parts.clear();
  }
  return all;
}

Status DeviceSink::Put(int64_t offset, std::span<const float> values) {
  return parts_.uploader.Copy(parts_.threads, memory_ + offset, values.data(),
                              static_cast<int64_t>(values.size_bytes()));
}

Status DeviceSink::AddMade(const StoredMatrix& made, const RowRange& held, int64_t first_row) {
  const int64_t row_bytes = place_->row_bytes();
  if (made.format.type == ElementType::kF32) {
    CHECK(place_->format.type == ElementType::kBF16);
    made_.resize(static_cast<size_t>(held.size() * row_bytes));
    DecodeRows(made, held.begin, held.end, made_.data());
    return parts_.uploader.Copy(parts_.threads, memory_ + place_->codes + first_row * row_bytes,
                                made_.data(), held.size() * row_bytes);
  }
  RETURN_IF_ERROR(
      parts_.uploader.Copy(parts_.threads, memory_ + place_->codes + first_row * row_bytes,
                           made.data + held.begin * row_bytes, held.size() * row_bytes));
  return PutScales(made, held, first_row);
}

Status DeviceSink::AddRandom(uint64_t tensor_seed, const RowRange& held, int64_t first_row,
                             const Done& done) {
  const int64_t rows = held.size();
  const DeviceMatrixPlace& place = *place_;
  const DummyNumbers numbers = DummyNumbers::For(place.format, place.cols);
  const device::Weights weights = place.At(memory_);
  const StreamHandle handle = parts_.stream.handle();
  parts_.kernels.random_codes(handle, {.out = memory_ + place.codes + first_row * place.row_bytes(),
                                       .type = weights.type,
                                       .tensor_seed = tensor_seed,
                                       .first_row = held.begin,
                                       .rows = rows,
                                       .cols = place.cols,
                                       .scale = numbers.plain_scale});
  // Whether row scales are the only scales.
  const bool rows_only = weights.group_type == device::GroupScales::kNone;
  if (!rows_only) {
    const bool with_zeros = weights.group_type == device::GroupScales::kWithZeros;
    const bool blocks = weights.group_type == device::GroupScales::kBlock || with_zeros;
    const float scale = with_zeros
                            ? std::bit_cast<float>(device::Int4ScaleWord(numbers.scale, kInt4Zero))
                            : numbers.scale;
    const int64_t group_rows = blocks ? place.block_rows : 1;
    const int64_t bytes = blocks ? 4 : 1;
    std::byte* out = memory_ + *place.group_scales;
    if (!place.has_nvf4_scales())
      out += first_row / group_rows * place.groups() * bytes;
    else if (first_row == 0)  // no row of the matrix has group scales
      parts_.stream.Fill(out, 0, place.group_scale_bytes());
    parts_.kernels.random_scales(handle,
                                 {.out = out,
                                  .type = weights.group_type,
                                  .tensor_seed = tensor_seed,
                                  .count = CeilDiv(rows, group_rows) * place.groups(),
                                  .value = blocks ? scale : static_cast<float>(numbers.scale_power),
                                  .first_row = first_row,
                                  .groups = place.groups(),
                                  .first_tensor_row = held.begin});
  }
  if (place.row_scales) {
    const float scale = rows_only ? numbers.scale : numbers.second_scale;
    NoteRowScale(scale, rows);
    parts_.kernels.random_scales(handle, {.out = memory_ + *place.row_scales + first_row * 4,
                                          .type = device::GroupScales::kBlock,
                                          .tensor_seed = tensor_seed,
                                          .count = rows,
                                          .value = scale});
  }
  done(rows * place.row_bytes());
  return {};
}

Status FillDeviceWeights(const DeviceSink::Parts& parts, const ParameterList& list,
                         std::span<const VectorParameter> held,
                         const std::vector<std::vector<float>>& rope_tables,
                         const Checkpoint* checkpoint, const QuantizationScheme& scheme,
                         const ModelOptions& options, const LoadProgress& progress,
                         DeviceWeightLayout& layout, std::byte* memory) {
  DeviceSink sink(parts, layout, memory);
  if (checkpoint == nullptr) {
    RETURN_IF_ERROR(
        FillDummyParameters(sink, list, options.dummy_seed, scheme, kDeviceComputeType, progress));
  } else {
    RETURN_IF_ERROR(LoadParameters(sink, list, *checkpoint, scheme, kDeviceComputeType, progress,
                                   options.allow_nonfinite));
  }
  for (size_t i = 0; i < held.size(); ++i)
    RETURN_IF_ERROR(sink.Put(layout.vector(i), *held[i].target));
  std::vector<float> frequencies;
  for (const std::vector<float>& table : rope_tables)
    frequencies.insert(frequencies.end(), table.begin(), table.end());
  if (!frequencies.empty()) RETURN_IF_ERROR(sink.Put(layout.rope_frequencies(), frequencies));
  RETURN_IF_ERROR(parts.stream.Synchronize());
  RETURN_IF_ERROR(parts.uploader.Finish());
  layout.SetScaledParts(sink.scaled_parts());
  if (checkpoint != nullptr) {
    LOG_INFO("models", "the weights reached the device at {:.2f} GB/s",
             parts.uploader.bytes_per_second() / 1e9);
  }
  return {};
}

}  // namespace sluice
