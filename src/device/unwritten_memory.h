// Host memory that reads as 0xFF bytes until it is written, for the emulated device.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace sluice {

// Allocates memory, aligned to 256 bytes. The host allocates pages of large memory only when they
// are written. kResourceExhausted if the host refuses; `what`: the memory's use, for the message.
// REQUIRES: bytes > 0.
Result<void*> AllocateUnwritten(int64_t bytes, const char* what);
void FreeUnwritten(void* data, int64_t bytes);  // `bytes`: the size that was passed to
                                                // AllocateUnwritten

}  // namespace sluice
