// Address arithmetic for arrays whose element type is known only at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::device {

// Returns the address `bytes` bytes after `address`; null for null.
inline const void* Behind(const void* address, int64_t bytes) {
  return address == nullptr ? nullptr : static_cast<const std::byte*>(address) + bytes;
}
inline void* Behind(void* address, int64_t bytes) {
  return address == nullptr ? nullptr : static_cast<std::byte*>(address) + bytes;
}

}  // namespace sluice::device
