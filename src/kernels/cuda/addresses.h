// Addresses within arrays whose elements' type is known when the program runs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::device {

// `bytes` after `address`; null stays null.
inline const void* Behind(const void* address, int64_t bytes) {
  return address == nullptr ? nullptr : static_cast<const std::byte*>(address) + bytes;
}
inline void* Behind(void* address, int64_t bytes) {
  return address == nullptr ? nullptr : static_cast<std::byte*>(address) + bytes;
}

}  // namespace sluice::device
