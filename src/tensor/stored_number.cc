#include "tensor/stored_number.h"

#include <cstring>

#include "base/check.h"
#include "tensor/bfloat16.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace sluice {

float StoredNumber(const std::byte* data, ElementType type, int64_t index) {
  const auto byte = [&] { return std::to_integer<uint8_t>(data[index]); };
  switch (type) {
    case ElementType::kF32: {
      float value;
      std::memcpy(&value, data + index * 4, 4);
      return value;
    }
    case ElementType::kBF16:
    case ElementType::kF16: {
      uint16_t bits;
      std::memcpy(&bits, data + index * 2, 2);
      return type == ElementType::kF16 ? HalfToFloat(bits) : ToFloat(BFloat16{bits});
    }
    case ElementType::kF8E4M3: return ToFloat(Float8E4M3{byte()});
    case ElementType::kU8:
    case ElementType::kF8E8M0: return PowerOfTwoToFloat(byte());
    case ElementType::kI8: return static_cast<float>(static_cast<int8_t>(byte()));
    default: CHECK(false, "{} is not the type of a stored number", ElementTypeName(type));
  }
  return 0;
}

}  // namespace sluice
