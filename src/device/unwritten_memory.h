// Memory of the host that reads as 0xFF bytes until it is written: what the emulated device has.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace sluice {

// Aligned to 256 bytes; bytes > 0. Large memory costs the host only the pages that are written.
// kResourceExhausted when the host refuses; `what` names the use.
Result<void*> AllocateUnwritten(int64_t bytes, const char* what);
void FreeUnwritten(void* data, int64_t bytes);  // `bytes` as allocated

}  // namespace sluice
