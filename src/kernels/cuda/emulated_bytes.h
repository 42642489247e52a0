// Copies and fills that the emulated device makes itself, hidden from the race checker; and a
// decoder of bytes.
#pragma once

#include <cstddef>
#include <cstring>

#include "kernels/cuda/emulated_races.h"

namespace sluice::emulator {

inline void CopyBytes(void* to, const void* from, size_t bytes) {
  if (!races::kCanFind) {
    if (bytes > 0) memcpy(to, from, bytes);
    return;
  }
  auto* target = static_cast<volatile unsigned char*>(to);
  const auto* source = static_cast<const unsigned char*>(from);
  for (size_t i = 0; i < bytes; ++i) target[i] = source[i];
}

inline void FillBytes(void* to, unsigned char byte, size_t bytes) {
  if (!races::kCanFind) {
    memset(to, byte, bytes);
    return;
  }
  auto* target = static_cast<volatile unsigned char*>(to);
  for (size_t i = 0; i < bytes; ++i) target[i] = byte;
}

// Decodes E4M3. NaN loses its sign, as in the conversion to F16.
float E4m3Of(const unsigned char* byte);

}  // namespace sluice::emulator
