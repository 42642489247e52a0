// Memory of rows of MXFP4 on a device. Has no includes, which the CUDA compiler would have to read.
#pragma once

#include <stdint.h>

namespace sluice::device {

constexpr int kMxF4Group = 32;  // elements per scale

// Returns the bytes of packed rows (PackMxF4Args): the codes, a multiple of 256 bytes, then the
// scales.
constexpr int64_t MxF4CodeBytes(int64_t rows, int64_t cols) {
  return (rows * cols / 2 + 255) / 256 * 256;
}
constexpr int64_t MxF4PackedBytes(int64_t rows, int64_t cols) {
  return MxF4CodeBytes(rows, cols) + rows * (cols / kMxF4Group);
}

}  // namespace sluice::device
