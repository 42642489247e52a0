// An integrated GPU shares the host's memory. Computes how much of that memory a plan may use.
//
// The driver's free memory does not count the page cache, which a checkpoint fills when it is
// loaded, so plans start from what the host can give without swapping (MemAvailable). A sixteenth
// of all memory (7.6 GiB of DGX Spark's 121.7) is left to the rest of the machine.
// --gpu-memory-utilization is a part of all memory, as on other GPUs: a given part must be
// available, the default one takes what is available.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "hardware/memory.h"

namespace sluice {

// MemoryLimits::limited_by of such a device.
inline constexpr std::string_view kSharedWithHost = "machine, whose memory it shares";

// Memory that a plan leaves to the rest of the machine.
inline int64_t SharedHeadroom(int64_t total_bytes) {
  return total_bytes / 16;
}

// The limits of a device of `total_bytes`; `host`: those of its machine.
inline MemoryLimits SharedMemory(int64_t total_bytes, const MemoryLimits& host) {
  const int64_t available = std::min(host.available_bytes, total_bytes);
  return {.total_bytes = total_bytes,
          .available_bytes = std::max<int64_t>(0, available - SharedHeadroom(total_bytes)),
          .limited_by = kSharedWithHost};
}

inline bool IsShared(const MemoryLimits& memory) {
  return memory.limited_by == kSharedWithHost;
}

}  // namespace sluice
