// Order of the E4M3 scales of NVFP4 on a device, for weights and for packed inputs: the order that
// the tensor cores of Blackwell require (PTX ISA, tcgen05.mma with block scaling; the scale factors
// of cuBLASLt's VEC16_UE4M3). A tile of 128 rows and 4 groups of 16 elements is 512 bytes; the
// scale of row r and group g is byte r % 32 * 16 + r / 32 * 4 + g. Tiles of the same rows are
// consecutive. Rows and groups of a tile beyond the matrix are zeros.
//
// Kernels read this order on every device, so that one copy of the scales serves them and the
// library. Has no includes, which the CUDA compiler would have to read.
#pragma once

#include <stdint.h>

#include "kernels/on_device_too.h"

namespace sluice::device {

constexpr int kNvF4Group = 16;  // elements per scale
constexpr int64_t kNvF4TileRows = 128, kNvF4TileGroups = 4, kNvF4TileBytes = 512;

// Returns the bytes of a matrix's scales.
SLUICE_ON_DEVICE_TOO constexpr int64_t NvF4ScaleBytes(int64_t rows, int64_t groups) {
  return (rows + kNvF4TileRows - 1) / kNvF4TileRows *
         ((groups + kNvF4TileGroups - 1) / kNvF4TileGroups) * kNvF4TileBytes;
}

// Returns the offset of a row's first scale. `groups`: number of groups per row.
SLUICE_ON_DEVICE_TOO constexpr int64_t NvF4ScaleRow(int64_t row, int64_t groups) {
  const int64_t tile =
      row / kNvF4TileRows * ((groups + kNvF4TileGroups - 1) / kNvF4TileGroups) * kNvF4TileBytes;
  return tile + row % 32 * 16 + row % kNvF4TileRows / 32 * 4;
}
// Returns the offset of a scale from the first one of its row.
SLUICE_ON_DEVICE_TOO constexpr int64_t NvF4ScaleGroup(int64_t group) {
  return group / kNvF4TileGroups * kNvF4TileBytes + group % kNvF4TileGroups;
}

}  // namespace sluice::device
