// Host memory that reads as 0xFF bytes until it is written, for the emulated device.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace sluice {

// Aligned to 256 bytes; bytes > 0. The host only allocates pages of large memory when they are
// written. kResourceExhausted if the host refuses; `what`: the use, for the message.
Result<void*> AllocateUnwritten(int64_t bytes, const char* what);
void FreeUnwritten(void* data, int64_t bytes);  // `bytes`: as allocated

}  // namespace sluice
