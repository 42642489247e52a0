// Counters of the RAM and disk tiers, for metrics.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice {

struct DiskTierCounts {
  uint64_t written = 0, read = 0;  // number of blocks
  // Blocks not written: the write queue was full (eviction was faster than writing), memory ran
  // out, or a folder has the file's name.
  uint64_t dropped = 0;
  uint64_t damaged = 0;  // files removed because they were truncated, damaged or foreign
  int64_t used_bytes = 0;
  bool writes = true;  // becomes false once a write fails
};

// Numbers of blocks since the start. Thread safety: the engine's thread writes, any thread reads.
struct TierCounters {
  std::atomic<uint64_t> ram_stored{0}, ram_loaded{0}, disk_loaded{0};
  std::atomic<uint64_t> dropped{0};  // evicted from memory without being stored on disk
  std::atomic<int64_t> ram_blocks{0};
};

// A snapshot of TierCounters.
struct PieceCounts {
  uint64_t ram_stored = 0, ram_loaded = 0, disk_loaded = 0, dropped = 0;

  void Add(const PieceCounts& other) {
    ram_stored += other.ram_stored;
    ram_loaded += other.ram_loaded;
    disk_loaded += other.disk_loaded;
    dropped += other.dropped;
  }
};

// The counts of all tiers that a server reports.
struct TierCounts {
  bool has_ram = false, has_disk = false;
  bool has_snapshots = false;  // whether sequences keep states
  int64_t bytes_per_block = 0;
  PieceCounts blocks, snapshots;
  int64_t ram_bytes = 0, ram_capacity = 0, disk_capacity = 0;  // blocks and snapshots together
  DiskTierCounts disk_blocks, disk_snapshots;
};

}  // namespace sluice
