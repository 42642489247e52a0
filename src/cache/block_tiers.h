// Where blocks go that leave the pool, and from where they come back: memory beyond the pool, then
// the disk.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cache/block_pool.h"
#include "cache/byte_blocks.h"
#include "cache/disk_tier.h"
#include "cache/ram_tier.h"
#include "cache/tier_counts.h"
#include "cache/tier_key.h"

namespace sluice {

// The bytes of the pool's blocks.
class BlockBytes {
 public:
  virtual ~BlockBytes() = default;
  virtual int64_t bytes_per_block() const = 0;
  // `bytes`: of bytes_per_block().
  virtual void Read(BlockId block, std::byte* bytes) const = 0;
  virtual void Write(BlockId block, const std::byte* bytes) = 0;
};

// A block that is evicted from the pool is copied to memory; from there the longest unused one goes
// to the disk, or is lost. Without memory it goes to the disk's queue at once. A block that comes
// back leaves the memory, but stays on the disk.
//
// Blocks are moved on the engine's thread, between steps. A step waits for the copies of step_bytes
// at most, in both directions together, but for the blocks that decoding sequences take, one each
// for the tokens of a block; whoever needs more moved waits for the next step. Nothing waits for
// the disk: blocks are read from it by its own thread, and copied when they are there.
//
// Thread safety: used by the engine's thread only. Ownership: refers to `bytes`, which outlives it.
class BlockTiers {
 public:
  // 64 MiB take a core about 10 ms, as long as a step of few tokens takes.
  static constexpr int64_t kStepBytes = int64_t{64} << 20;
  // Blocks of the disk that are read before they are asked for.
  static constexpr int64_t kReadAhead = 32;
  // A sequence that has waited for so long for the next block is computed instead.
  static constexpr std::chrono::seconds kMostWait{5};

  // `memory`: for max_ram_blocks, and what the disk's queue holds. `disk` may be null. `counters`
  // outlives the tiers.
  BlockTiers(BlockBytes& bytes, std::shared_ptr<ByteBlocks> memory, int64_t max_ram_blocks,
             std::shared_ptr<DiskTier> disk, TierCounters& counters,
             int64_t step_bytes = kStepBytes);
  ~BlockTiers();
  BlockTiers(const BlockTiers&) = delete;
  BlockTiers& operator=(const BlockTiers&) = delete;

  // A step is planned: blocks may be moved again.
  void BeginStep() { num_moved_ = 0; }
  // How many blocks may still be moved in this step. At the beginning of one at least two: one that
  // comes, and one that leaves for it.
  int64_t num_left() const { return std::max<int64_t>(0, max_moved_ - num_moved_); }

  // The pool loses the block of this name.
  void Store(const TierKey& key, int64_t group, BlockId block);

  enum class State {
    kAbsent,
    kComing,  // from the disk
    kReady,   // Load will copy it
  };
  // Whether there is such a block; begins nothing.
  bool Has(const TierKey& key, int64_t group) const;
  // Begins to read it from the disk, if it is there; `now`: it is the next that is loaded.
  State Prepare(const TierKey& key, int64_t group, bool now);
  // Copies it into the pool's block. False if it has gone. REQUIRES: Prepare has said kReady.
  bool Load(const TierKey& key, int64_t group, BlockId block);
  // Waits for a moment where blocks are being read from the disk.
  void WaitForDisk() const;

  // A block of the pool, and its name.
  struct Named {
    TierKey key;
    int64_t group = 0;
    BlockId block = kNoBlock;
  };
  // Writes blocks of the pool, then those in memory, the last used of these first, to the disk, as
  // many as it takes within so many seconds. REQUIRES: nothing is moved any more.
  void Save(std::span<const Named> blocks, double max_seconds);

  // Forgets everything; with `keeps_disk` only what is in memory.
  void Clear(bool keeps_disk);

 private:
  void Evict();

  BlockBytes& bytes_;
  const std::shared_ptr<ByteBlocks> memory_;
  const std::shared_ptr<DiskTier> disk_;
  TierCounters& counters_;
  RamTier ram_;
  const int64_t max_moved_;  // blocks in a step
  int64_t num_moved_ = 0;
};

}  // namespace sluice
