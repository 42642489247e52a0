// What tiers count, for metrics.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice {

struct DiskTierCounts {
  uint64_t written = 0, read = 0;  // blocks
  // Blocks that were not written: the queue was full, as writes are slower than blocks leave.
  uint64_t dropped = 0;
  uint64_t damaged = 0;  // files that were cut, damaged or foreign, and were removed
  int64_t used_bytes = 0;
  bool writes = true;  // false once a write has failed
};

// Blocks, since the start. Thread safety: written by the engine's thread, read by any.
struct TierCounters {
  std::atomic<uint64_t> ram_stored{0}, ram_loaded{0}, disk_loaded{0};
  std::atomic<uint64_t> dropped{0};  // left the memory, and no disk took them
  std::atomic<int64_t> ram_blocks{0};
};

// What a server shows of its tiers.
struct TierCounts {
  bool has_ram = false, has_disk = false;
  int64_t bytes_per_block = 0;
  uint64_t ram_stored = 0, ram_loaded = 0, disk_loaded = 0, dropped = 0;
  int64_t ram_bytes = 0, ram_capacity = 0, disk_capacity = 0;
  DiskTierCounts disk;
};

}  // namespace sluice
