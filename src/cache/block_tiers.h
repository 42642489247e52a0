// Tiers for blocks that are evicted from the pool: memory outside the pool, then the disk.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "cache/block_pool.h"
#include "cache/byte_blocks.h"
#include "cache/disk_tier.h"
#include "cache/ram_tier.h"
#include "cache/tier_changes.h"
#include "cache/tier_counts.h"
#include "cache/tier_key.h"
#include "cache/tier_listener.h"

namespace sluice {

// Copies the content of the pool's blocks. `bytes`: buffer of bytes_per_block() bytes.
class BlockBytes {
 public:
  virtual ~BlockBytes() = default;
  virtual int64_t bytes_per_block() const = 0;
  virtual void Read(BlockId block, std::byte* bytes) const = 0;
  virtual void Write(BlockId block, const std::byte* bytes) = 0;
};

// A block that is evicted from the pool is copied to memory (the RAM tier). The least recently used
// block there goes to the disk, or is dropped without a disk. Without a RAM tier, a block goes
// straight to the disk's write queue. A block that is loaded back leaves the memory, but stays on
// the disk.
//
// Blocks are copied on the engine's thread, between steps: at most step_bytes per step, in both
// directions together. A sequence that needs more waits for the next step. The limit does not apply
// to blocks taken for decoding, one per group whenever a sequence fills a block. Nothing waits for
// the disk: its own thread reads blocks, and they are copied once they are read.
//
// Thread safety: used by the engine's thread only. Ownership: refers to `bytes`, which outlives it.
class BlockTiers {
 public:
  // A core copies 64 MiB in about 10 ms, as long as a step of few tokens takes.
  static constexpr int64_t kStepBytes = int64_t{64} << 20;
  // Number of blocks read from the disk ahead of time.
  static constexpr int64_t kReadAhead = 32;
  // After waiting this long for its next block, a sequence computes the rest instead.
  static constexpr std::chrono::seconds kMostWait{5};

  // `memory`: max_ram_blocks blocks, and those in the disk's write queue. `disk` may be null.
  // `counters` outlives the tiers.
  BlockTiers(BlockBytes& bytes, std::shared_ptr<ByteBlocks> memory, int64_t max_ram_blocks,
             std::shared_ptr<DiskTier> disk, TierCounters& counters,
             int64_t step_bytes = kStepBytes);
  ~BlockTiers();
  BlockTiers(const BlockTiers&) = delete;
  BlockTiers& operator=(const BlockTiers&) = delete;

  // Who is told what the tiers gain and lose from now on; outlives the tiers. Changes are collected
  // until TellChanges(), DropChanges() forgets them.
  void set_listener(TierListener* listener);
  TierListener* listener() const { return listener_; }
  void TellChanges();
  void DropChanges();

  // Resets the limit of moved blocks. Called before each step is planned.
  void BeginStep() { num_moved_ = 0; }
  // Number of blocks that may still be moved in this step. At least two at the start of a step: one
  // to load, and one to evict for it.
  int64_t num_left() const { return std::max<int64_t>(0, max_moved_ - num_moved_); }

  // Saves a block that is evicted from the pool.
  void Store(const TierKey& key, int64_t group, BlockId block);

  enum class State {
    kAbsent,
    kComing,  // from the disk
    kReady,   // Load will copy it
  };
  // Whether a tier has the block. Does not start to read it.
  bool Has(const TierKey& key, int64_t group) const;
  // Starts to read the block if it is on the disk. `now`: it is the next to be loaded.
  State Prepare(const TierKey& key, int64_t group, bool now);
  // Copies the content into the pool's block. False if the tiers no longer have it. REQUIRES:
  // Prepare has returned kReady.
  bool Load(const TierKey& key, int64_t group, BlockId block);
  // Waits up to 2 ms if blocks are being read from the disk.
  void WaitForDisk() const;

  struct Named {
    TierKey key;
    int64_t group = 0;
    BlockId block = kNoBlock;
  };
  // Writes the blocks of the pool to the disk, then those in memory, the most recently used first,
  // as many as fit in `max_seconds`. REQUIRES: no blocks are moved afterwards.
  void Save(std::span<const Named> blocks, double max_seconds);

  // Drops all blocks; with `keeps_disk` only those in memory.
  void Clear(bool keeps_disk);

 private:
  void Evict();
  void TellMemory(const TierName& name, bool is_stored) const {
    if (changes_ != nullptr) changes_->Add({name, TierMedium::kMemory, is_stored});
  }

  BlockBytes& bytes_;
  const std::shared_ptr<ByteBlocks> memory_;
  const std::shared_ptr<DiskTier> disk_;
  TierCounters& counters_;
  RamTier ram_;
  const int64_t max_moved_;  // per step
  int64_t num_moved_ = 0;
  TierListener* listener_ = nullptr;
  std::shared_ptr<TierChanges> changes_;  // null without a listener
};

}  // namespace sluice
