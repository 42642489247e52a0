#include "device/tensor_map.h"

#include <atomic>

#include <cuda_runtime_api.h>

namespace sluice {
namespace {

// cuTensorMapEncodeTiled, whose enumerations are numbers here.
using Encode = int (*)(device::TensorMap* map, int type, uint32_t rank, void* address,
                       const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                       const uint32_t* element_strides, int interleave, int swizzle,
                       int l2_promotion, int fill);

// Returns a cudaError_t.
int FindEncode(Encode& encode) {
  constexpr unsigned kFirstVersion = 12000;
  static std::atomic<void*> known{nullptr};
  void* function = known;
  if (function == nullptr) {
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t code = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, kFirstVersion, cudaEnableDefault, &result);
    if (code != cudaSuccess) {
      cudaGetLastError();
      return code;
    }
    if (result != cudaDriverEntryPointSuccess || function == nullptr) return cudaErrorNotSupported;
    known = function;
  }
  encode = reinterpret_cast<Encode>(function);
  return cudaSuccess;
}

}  // namespace

int EncodeTensorMap(device::TensorMap* map, const void* address, const uint64_t (&sizes)[2],
                    const uint64_t (&strides)[1], const uint32_t (&box)[2]) {
  Encode encode = nullptr;
  if (const int code = FindEncode(encode); code != cudaSuccess) return code;
  constexpr uint32_t kOnes[] = {1, 1};
  constexpr int kPromotesTo128Bytes = 2;  // CU_TENSOR_MAP_L2_PROMOTION_L2_128B
  return encode(map, static_cast<int>(device::TensorType::kU8), 2, const_cast<void*>(address),
                sizes, strides, box, kOnes, 0, static_cast<int>(device::TensorSwizzle::k128),
                kPromotesTo128Bytes, 0);
}

}  // namespace sluice
