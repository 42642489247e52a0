// Describes matrices to a GPU's copies of tiles, by the driver's cuTensorMapEncodeTiled. Compiled
// only into programs built with CUDA.
#pragma once

#include "device/plain_tensor_map.h"

namespace sluice {

// Describes rows of bytes for copies of tiles of box[1] rows by box[0] bytes, whose pieces of 16
// bytes are exchanged as by TensorSwizzle::k128. sizes: bytes of a row, rows. strides: bytes from
// one row to the next. Returns a CUresult (0: success), or a cudaError_t if the driver has no such
// function (before CUDA 12.0). Thread safe.
int EncodeTensorMap(device::TensorMap* map, const void* address, const uint64_t (&sizes)[2],
                    const uint64_t (&strides)[1], const uint32_t (&box)[2]);

}  // namespace sluice
