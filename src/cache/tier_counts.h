// Counters of the tiers, for metrics.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice {

struct DiskTierCounts {
  uint64_t written = 0, read = 0;  // blocks
  // Blocks dropped because the write queue was full: blocks were evicted faster than written.
  uint64_t dropped = 0;
  uint64_t damaged = 0;  // files removed because they were truncated, damaged or foreign
  int64_t used_bytes = 0;
  bool writes = true;  // false once a write has failed
};

// Numbers of blocks since the start. Thread safety: written by the engine's thread, read by any.
struct TierCounters {
  std::atomic<uint64_t> ram_stored{0}, ram_loaded{0}, disk_loaded{0};
  std::atomic<uint64_t> dropped{0};  // evicted from memory and not given to a disk
  std::atomic<int64_t> ram_blocks{0};
};

// Values of TierCounters.
struct PieceCounts {
  uint64_t ram_stored = 0, ram_loaded = 0, disk_loaded = 0, dropped = 0;

  void Add(const PieceCounts& other) {
    ram_stored += other.ram_stored;
    ram_loaded += other.ram_loaded;
    disk_loaded += other.disk_loaded;
    dropped += other.dropped;
  }
};

// The tiers' counts that a server reports.
struct TierCounts {
  bool has_ram = false, has_disk = false;
  bool has_snapshots = false;  // sequences keep states
  int64_t bytes_per_block = 0;
  PieceCounts blocks, snapshots;
  int64_t ram_bytes = 0, ram_capacity = 0, disk_capacity = 0;  // of blocks and snapshots
  DiskTierCounts disk_blocks, disk_snapshots;
};

}  // namespace sluice
