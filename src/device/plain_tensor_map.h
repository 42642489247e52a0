// Tensor maps: descriptions of matrices in global memory, from which a GPU of compute capability
// 9.0 copies tiles to shared memory. Only the driver can write them for a GPU. The emulator, the
// tests' stand-in of CUDA's runtime and their interpreter of PTX use the encoding of this file. The
// parameters and their limits are those of cuTensorMapEncodeTiled in CUDA's documentation.
#pragma once

#include <cstdint>

namespace sluice::device {

// What the driver or PlainTensorMap fills; a GPU requires the alignment.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// Pieces of 16 bytes of a tile's row are exchanged within this many bytes of shared memory:
// CUtensorMapSwizzle.
enum class TensorSwizzle : int { kNone = 0, k32 = 1, k64 = 2, k128 = 3 };
// Element types: CUtensorMapDataType.
enum class TensorType : int { kU8 = 0, kU16 = 1, kU32 = 2, kF16 = 6, kF32 = 7, kBf16 = 9 };

constexpr int kMostTensorRank = 3;  // of the documented 5

struct PlainTensorMap {
  static constexpr uint64_t kMagic = 0x736C756963656D70;
  uint64_t magic;
  uint64_t address;
  uint64_t sizes[kMostTensorRank];    // elements, the innermost dimension first
  uint64_t strides[kMostTensorRank];  // bytes between neighbours; the first is an element's size
  uint32_t box[kMostTensorRank];      // elements of a tile
  uint32_t rank;
  TensorSwizzle swizzle;
};
static_assert(sizeof(PlainTensorMap) <= sizeof(TensorMap));

// Has the parameters of cuTensorMapEncodeTiled. `strides` has rank - 1 numbers of bytes. Returns 0,
// or 1 (CUDA_ERROR_INVALID_VALUE) for what the documentation forbids and for what is not supported
// here: ranks other than 2 and 3, element strides other than 1, interleaved layouts, and filling
// with NaN.
int EncodePlainTensorMap(TensorMap* map, int type, uint32_t rank, void* address,
                         const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                         const uint32_t* element_strides, int interleave, int swizzle,
                         int l2_promotion, int fill);

}  // namespace sluice::device
