// What the products of warpgroups (linear_f8_groups.cu) share with the host's part.
#pragma once

#include "kernels/cuda/linear_tile.h"
#include "kernels/cuda/warpgroup_code.h"
#if defined(__CUDACC__) && !defined(__HIP__)
#include "device/tensor_map.h"
#endif

namespace sluice::SLUICE_DEVICE_NAMESPACE::linear {

// Describes rows of bytes for copies of tiles of box[1] rows by box[0] bytes. Returns 0 or an error
// code of the driver.
inline int EncodeCodes(device::TensorMap& map, const void* codes, const uint64_t (&sizes)[2],
                       const uint64_t (&strides)[1], const uint32_t (&box)[2]) {
#if defined(__CUDACC__) && !defined(__HIP__)
  return EncodeTensorMap(&map, codes, sizes, strides, box);
#else
  constexpr uint32_t kOnes[] = {1, 1};
  return device::EncodePlainTensorMap(&map, static_cast<int>(device::TensorType::kU8), 2,
                                      const_cast<void*>(codes), sizes, strides, box, kOnes, 0,
                                      static_cast<int>(device::TensorSwizzle::k128), 0, 0);
#endif
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE::linear
