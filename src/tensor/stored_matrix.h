// A weight matrix in the layout of the checkpoint, from which kernels' layouts are packed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/data_format.h"

namespace sluice {

// The zero point of 4-bit codes if the checkpoint stores none.
inline constexpr int kInt4Zero = 8;

// How 8 kInt4 codes share a little-endian 32-bit word.
enum class Int4Packing : uint8_t {
  kInputs,   // Adjacent inputs of one row, the first in the lowest bits: compressed-tensors ([out,
             // in / 8]) and, transposed, GPTQ ([in / 8, out]).
  kOutputs,  // AWQ, only transposed, [in, out / 8]: 8 adjacent rows of one input; from the lowest
             // bits: rows 0 2 4 6 1 3 5 7. Its zero points have the same order.
};

// A view of a row-major matrix [rows, cols] = [out, in] and its scales. Element [n, k] has the
// value data[n, k] * scale * second_scale, where format.scale_layout determines the scale. No
// alignment is required. Two F4_E2M1 elements share a byte, the even input in the low nibble.
//
// If `transposed`, the memory holds [in, out]: element [n, k] is at row k, column n; group scales
// are [in / group_size, out], and F4_E2M1 bytes are [in / 2, out].
//
// Zero points of kInt4 have 4 bits as well. A word holds those of 8 rows for one group: [ceil(out /
// 8), groups] or, if transposed, [groups, ceil(out / 8)].
//
// Ownership: none; the mapped file must outlive it.
struct StoredMatrix {
  DataFormat format;
  int64_t rows = 0;  // out
  int64_t cols = 0;  // in
  const std::byte* data = nullptr;
  const std::byte* scales = nullptr;  // elements of format.scale_type; null for kNone
  float second_scale = 1;             // 1 if the format has no second scale
  bool transposed = false;
  // kI8: codes are stored as unsigned bytes, code + 128. If such a matrix is transposed, four
  // adjacent inputs of a row share a 32-bit word: [in / 4, out].
  bool has_offset_codes = false;
  // Used by kInt4, and by kI8 with offset codes.
  Int4Packing packing = Int4Packing::kInputs;
  const std::byte* zero_points = nullptr;  // null: all are kInt4Zero
  int zero_point_offset = 0;               // added to stored zero points, modulo 16
  // Used by kInt4, and by kI8 with offset codes: a permutation of the inputs, [cols]. Input
  // input_order[i] belongs to group i / group_size. null: the identity.
  const int32_t* input_order = nullptr;
};

// The code of an element of a kI8 matrix with offset codes.
int8_t OffsetInt8Code(const StoredMatrix& matrix, int64_t row, int64_t input);

// Return the code of a kInt4 element, and the zero point of group `group` of a row (group 0 if
// scales are per row).
int Int4Code(const StoredMatrix& matrix, int64_t row, int64_t input);
int Int4ZeroPoint(const StoredMatrix& matrix, int64_t row, int64_t group);

// Views a matrix without scales.
inline StoredMatrix PlainMatrix(const void* data, ElementType type, int64_t rows, int64_t cols) {
  return {.format = {.type = type},
          .rows = rows,
          .cols = cols,
          .data = static_cast<const std::byte*>(data)};
}

// Decodes a row to out [cols]: exact, except for one rounding if a scale or second scale is not a
// power of two. The reference for all formats. REQUIRES: a format that a scheme
// (checkpoint/schemes) produces.
void DecodeStoredRow(const StoredMatrix& matrix, int64_t row, float* out);

// Return the number of bytes of the data, the number of scales, and the number of bytes of the
// scales.
int64_t DataBytes(const StoredMatrix& matrix);
int64_t ScaleCount(const StoredMatrix& matrix);
int64_t ScaleBytes(const StoredMatrix& matrix);

}  // namespace sluice
