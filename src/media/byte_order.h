// Reads numbers from untrusted bytes. REQUIRES: the bytes are within the given range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

inline uint32_t ByteAt(std::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}

inline uint32_t Little16(std::string_view bytes, size_t at) {
  return ByteAt(bytes, at) | ByteAt(bytes, at + 1) << 8;
}
inline uint32_t Little24(std::string_view bytes, size_t at) {
  return Little16(bytes, at) | ByteAt(bytes, at + 2) << 16;
}
inline uint32_t Little32(std::string_view bytes, size_t at) {
  return Little16(bytes, at) | Little16(bytes, at + 2) << 16;
}
inline uint32_t Big16(std::string_view bytes, size_t at) {
  return ByteAt(bytes, at) << 8 | ByteAt(bytes, at + 1);
}
inline uint32_t Big32(std::string_view bytes, size_t at) {
  return Big16(bytes, at) << 16 | Big16(bytes, at + 2);
}

}  // namespace sluice
