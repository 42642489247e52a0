#include "tensor/finite.h"

#include <cstring>

namespace sluice {
namespace {

// Scans numbers in 64-bit words. `kMask`: the exponent bits (for E4M3, all bits except the sign).
// They are all set if and only if the number is not finite. Only then does adding `kStep` carry
// into the number's highest bit, which the mask has cleared.
template <uint64_t kMask, uint64_t kStep>
bool Scan(const std::byte* data, int64_t bytes) {
  constexpr int64_t kWords = 8, kBytes = kWords * 8;
  uint64_t found = 0, words[kWords];
  int64_t at = 0;
  for (; at + kBytes <= bytes; at += kBytes) {
    std::memcpy(words, data + at, kBytes);
    for (const uint64_t word : words) found |= (word & kMask) + kStep;
  }
  for (uint64_t& word : words) word = 0;
  if (at < bytes) std::memcpy(words, data + at, static_cast<size_t>(bytes - at));
  for (const uint64_t word : words) found |= (word & kMask) + kStep;
  constexpr uint64_t kHighest = ~kMask & (kMask + kStep);
  return (found & kHighest) == 0;
}

}  // namespace

bool AllFinite(const std::byte* data, ElementType type, int64_t count) {
  switch (type) {
    case ElementType::kF32: return Scan<0x7F8000007F800000, 0x0080000000800000>(data, count * 4);
    case ElementType::kBF16: return Scan<0x7F807F807F807F80, 0x0080008000800080>(data, count * 2);
    case ElementType::kF16: return Scan<0x7C007C007C007C00, 0x0400040004000400>(data, count * 2);
    case ElementType::kF8E4M3: return Scan<0x7F7F7F7F7F7F7F7F, 0x0101010101010101>(data, count);
    case ElementType::kF8E5M2: return Scan<0x7C7C7C7C7C7C7C7C, 0x0404040404040404>(data, count);
    default: return true;
  }
}

bool RowsAreFinite(const StoredMatrix& matrix, int64_t begin, int64_t end) {
  const ElementType type = matrix.format.type;
  // Types narrower than a byte are always finite.
  const int64_t bytes = BitsPerElement(type) / 8;
  if (!matrix.transposed)
    return AllFinite(matrix.data + begin * matrix.cols * bytes, type, (end - begin) * matrix.cols);
  if (bytes == 0) return true;
  for (int64_t k = 0; k < matrix.cols; ++k) {
    if (!AllFinite(matrix.data + (k * matrix.rows + begin) * bytes, type, end - begin))
      return false;
  }
  return true;
}

}  // namespace sluice
