// Computes how much memory a plan may use on an integrated GPU, which shares the host's memory.
//
// The driver's free memory does not include the page cache, which is filled while a checkpoint is
// loaded. So plans start from the memory that the host can provide without swapping (MemAvailable).
// A sixteenth of all memory (7.6 GiB of DGX Spark's 121.7) is left for the rest of the machine. As
// on other GPUs, --gpu-memory-utilization is a fraction of all memory. A configured fraction must
// be available; the default fraction is reduced to the available memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "hardware/memory.h"

namespace sluice {

// Value of MemoryLimits::limited_by for an integrated GPU.
inline constexpr std::string_view kSharedWithHost = "machine, whose memory it shares";

// Memory that a plan leaves for the rest of the machine.
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
