#include "device/plain_tensor_map.h"

#include <cstring>

namespace sluice::device {
namespace {

uint64_t ElementBytes(int type) {
  switch (static_cast<TensorType>(type)) {
    case TensorType::kU8: return 1;
    case TensorType::kU16:
    case TensorType::kF16:
    case TensorType::kBf16: return 2;
    case TensorType::kU32:
    case TensorType::kF32: return 4;
  }
  return 0;
}

}  // namespace

int EncodePlainTensorMap(TensorMap* map, int type, uint32_t rank, void* address,
                         const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                         const uint32_t* element_strides, int interleave, int swizzle,
                         int l2_promotion, int fill) {
  constexpr int kInvalid = 1;
  constexpr uint64_t kMostSize = uint64_t{1} << 32, kMostStride = uint64_t{1} << 40;
  constexpr uint32_t kMostBox = 256;
  const uint64_t element = ElementBytes(type);
  if (map == nullptr || reinterpret_cast<uintptr_t>(map) % alignof(TensorMap) != 0) return kInvalid;
  if (element == 0 || rank < 2 || rank > kMostTensorRank) return kInvalid;
  if (address == nullptr || reinterpret_cast<uintptr_t>(address) % 16 != 0) return kInvalid;
  if (interleave != 0 || swizzle < 0 || swizzle > static_cast<int>(TensorSwizzle::k128))
    return kInvalid;
  if (l2_promotion < 0 || l2_promotion > 3 || fill != 0) return kInvalid;
  PlainTensorMap plain = {};
  plain.magic = PlainTensorMap::kMagic;
  plain.address = reinterpret_cast<uintptr_t>(address);
  plain.rank = rank;
  plain.swizzle = static_cast<TensorSwizzle>(swizzle);
  for (uint32_t i = 0; i < kMostTensorRank; ++i) {
    plain.sizes[i] = i < rank ? sizes[i] : 1;
    plain.box[i] = i < rank ? box[i] : 1;
    plain.strides[i] = i == 0 ? element : i < rank ? strides[i - 1] : 0;
    if (i >= rank) continue;
    if (sizes[i] == 0 || sizes[i] > kMostSize) return kInvalid;
    if (box[i] == 0 || box[i] > kMostBox || element_strides[i] != 1) return kInvalid;
    if (i == 0) continue;
    if (strides[i - 1] % 16 != 0 || strides[i - 1] >= kMostStride) return kInvalid;
    if (strides[i - 1] < plain.strides[i - 1] * sizes[i - 1]) return kInvalid;
  }
  const uint64_t inner = box[0] * element;
  if (inner % 16 != 0) return kInvalid;
  if (swizzle != 0 && inner > uint64_t{16} << swizzle) return kInvalid;
  memset(map, 0, sizeof(*map));
  memcpy(map, &plain, sizeof(plain));
  return 0;
}

}  // namespace sluice::device
