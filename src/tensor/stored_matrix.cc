#include "tensor/stored_matrix.h"

#include <cstring>

#include "base/check.h"
#include "tensor/float4.h"
#include "tensor/stored_number.h"

namespace sluice {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The scale of element [row, k], not including the second scale.
float ScaleOf(const StoredMatrix& matrix, int64_t row, int64_t k) {
  const DataFormat& format = matrix.format;
  int64_t index = 0;
  switch (format.scale_layout) {
    case DataFormat::ScaleLayout::kNone: return 1;
    case DataFormat::ScaleLayout::kPerTensor: break;
    case DataFormat::ScaleLayout::kPerRow: index = row; break;
    case DataFormat::ScaleLayout::kPerGroup:
      index = matrix.transposed ? k / format.group_size * matrix.rows + row
                                : row * (matrix.cols / format.group_size) + k / format.group_size;
      break;
    case DataFormat::ScaleLayout::kPerBlock:
      index = row / format.block_rows * CeilDivide(matrix.cols, format.group_size) +
              k / format.group_size;
      break;
  }
  return StoredNumber(matrix.scales, format.scale_type, index);
}

// Extracts a 4-bit code from word `word`. `lane`: index of the row in the word. `interleaved`: rows
// have AWQ's order.
int CodeIn(const std::byte* words, int64_t word, int64_t lane, bool interleaved) {
  uint32_t bits;
  std::memcpy(&bits, words + word * 4, 4);
  if (interleaved) lane = lane % 2 * 4 + lane / 2;
  return static_cast<int>(bits >> (4 * lane) & 15);
}

// Decodes a row of kI8 with offset codes.
void DecodeOffsetInt8Row(const StoredMatrix& matrix, int64_t row, float* out) {
  for (int64_t i = 0; i < matrix.cols; ++i) {
    const int64_t input = matrix.input_order == nullptr ? i : matrix.input_order[i];
    out[input] = static_cast<float>(OffsetInt8Code(matrix, row, input)) * ScaleOf(matrix, row, i);
  }
}

// Decodes a row of kInt4.
void DecodeInt4Row(const StoredMatrix& matrix, int64_t row, float* out) {
  const int64_t group_size = matrix.format.group_size == 0 ? matrix.cols : matrix.format.group_size;
  for (int64_t i = 0; i < matrix.cols; ++i) {
    const int64_t input = matrix.input_order == nullptr ? i : matrix.input_order[i];
    const int zero = Int4ZeroPoint(matrix, row, i / group_size);
    out[input] = static_cast<float>(Int4Code(matrix, row, input) - zero) * ScaleOf(matrix, row, i);
  }
}

}  // namespace

int8_t OffsetInt8Code(const StoredMatrix& matrix, int64_t row, int64_t input) {
  const int64_t byte = matrix.transposed ? (input / 4 * matrix.rows + row) * 4 + input % 4
                                         : row * matrix.cols + input;
  return static_cast<int8_t>(std::to_integer<int>(matrix.data[byte]) - 128);
}

int Int4Code(const StoredMatrix& matrix, int64_t row, int64_t input) {
  if (matrix.packing == Int4Packing::kOutputs)
    return CodeIn(matrix.data, input * (matrix.rows / 8) + row / 8, row % 8, true);
  const int64_t word = matrix.transposed ? input / 8 * matrix.rows + row
                                         : row * CeilDivide(matrix.cols, 8) + input / 8;
  return CodeIn(matrix.data, word, input % 8, false);
}

int Int4ZeroPoint(const StoredMatrix& matrix, int64_t row, int64_t group) {
  if (matrix.zero_points == nullptr) return kInt4Zero;
  const int64_t groups = matrix.format.group_size == 0 ? 1 : matrix.cols / matrix.format.group_size;
  const int64_t word =
      matrix.transposed ? group * CeilDivide(matrix.rows, 8) + row / 8 : row / 8 * groups + group;
  const int stored =
      CodeIn(matrix.zero_points, word, row % 8, matrix.packing == Int4Packing::kOutputs);
  return (stored + matrix.zero_point_offset) & 15;
}

void DecodeStoredRow(const StoredMatrix& matrix, int64_t row, float* out) {
  CHECK(row >= 0 && row < matrix.rows);
  const DataFormat& format = matrix.format;
  if (format.type == ElementType::kInt4) return DecodeInt4Row(matrix, row, out);
  if (matrix.has_offset_codes) return DecodeOffsetInt8Row(matrix, row, out);
  const bool is_packed = format.type == ElementType::kF4E2M1;
  float scale = ScaleOf(matrix, row, 0);
  for (int64_t k = 0; k < matrix.cols; ++k) {
    if (format.group_size != 0 && k % format.group_size == 0) scale = ScaleOf(matrix, row, k);
    float value = 0;
    if (is_packed) {
      const int64_t pair =
          matrix.transposed ? k / 2 * matrix.rows + row : (row * matrix.cols + k) / 2;
      const auto byte = std::to_integer<uint8_t>(matrix.data[pair]);
      value = Float4ToFloat(k % 2 == 0 ? byte & 0xF : byte >> 4);
    } else {
      const int64_t index = matrix.transposed ? k * matrix.rows + row : row * matrix.cols + k;
      value = StoredNumber(matrix.data, format.type, index);
    }
    out[k] = format.scale_layout == DataFormat::ScaleLayout::kNone
                 ? value
                 : value * scale * matrix.second_scale;
  }
}

int64_t DataBytes(const StoredMatrix& matrix) {
  return matrix.rows * matrix.cols * BitsPerElement(matrix.format.type) / 8;
}

int64_t ScaleCount(const StoredMatrix& matrix) {
  const DataFormat& format = matrix.format;
  switch (format.scale_layout) {
    case DataFormat::ScaleLayout::kNone: return 0;
    case DataFormat::ScaleLayout::kPerTensor: return 1;
    case DataFormat::ScaleLayout::kPerRow: return matrix.rows;
    case DataFormat::ScaleLayout::kPerGroup: return matrix.rows * (matrix.cols / format.group_size);
    case DataFormat::ScaleLayout::kPerBlock:
      return CeilDivide(matrix.rows, format.block_rows) *
             CeilDivide(matrix.cols, format.group_size);
  }
  return 0;
}

int64_t ScaleBytes(const StoredMatrix& matrix) {
  return ScaleCount(matrix) * BitsPerElement(matrix.format.scale_type) / 8;
}

}  // namespace sluice
