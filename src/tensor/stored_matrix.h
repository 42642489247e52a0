// A weight matrix as a checkpoint stores it: the input of packing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/data_format.h"

namespace sluice {

// A view of a row-major matrix [rows, cols] = [out, in] with its scales. The value of element [n,
// k] is data[n, k] * scale * second_scale, where format.scale_layout determines the scale. No
// alignment is required. Two elements of type F4_E2M1 share a byte, the even input in the low
// nibble.
//
// Where `transposed`, the memory holds [in, out]: element [n, k] is at row k, column n; scales
// of groups are [in / group_size, out], and bytes of F4_E2M1 are [in / 2, out]. Ownership: none;
// the mapped file must outlive it.
struct StoredMatrix {
  DataFormat format;
  int64_t rows = 0;  // out
  int64_t cols = 0;  // in
  const std::byte* data = nullptr;
  const std::byte* scales = nullptr;  // of format.scale_type; null where the layout is kNone
  float second_scale = 1;             // 1 where the format has none
  bool transposed = false;
};

// A matrix of plain numbers.
inline StoredMatrix PlainMatrix(const void* data, ElementType type, int64_t rows, int64_t cols) {
  return {.format = {.type = type},
          .rows = rows,
          .cols = cols,
          .data = static_cast<const std::byte*>(data)};
}

// The values of one row, exactly (one rounding where a scale or second scale is not a power of
// two): out [cols]. The reference for all formats. REQUIRES: a format that a scheme
// (checkpoint/schemes) yields.
void DecodeStoredRow(const StoredMatrix& matrix, int64_t row, float* out);

// Sizes of the data and of the scales.
int64_t DataBytes(const StoredMatrix& matrix);
int64_t ScaleCount(const StoredMatrix& matrix);
int64_t ScaleBytes(const StoredMatrix& matrix);

}  // namespace sluice
