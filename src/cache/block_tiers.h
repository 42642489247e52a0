// Tiers keep blocks that the pool evicts: first in memory outside the pool (RAM tier), then on
// disk.
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

// Copies the content of the pool's blocks. `bytes`: a buffer of bytes_per_block() bytes.
class BlockBytes {
 public:
  virtual ~BlockBytes() = default;
  virtual int64_t bytes_per_block() const = 0;
  virtual void Read(BlockId block, std::byte* bytes) const = 0;
  virtual void Write(BlockId block, const std::byte* bytes) = 0;
};

// A block that the pool evicts is copied to the RAM tier. The least recently used block of the RAM
// tier then moves to the disk, or is dropped if there is no disk tier. Without a RAM tier, an
// evicted block goes directly to the disk's write queue. A block that is loaded back leaves the RAM
// tier, but stays on disk.
//
// Blocks are copied on the engine's thread, between steps: at most step_bytes per step, both
// directions together. A sequence that needs more blocks waits for the next step. The limit does
// not apply to blocks taken for decoding: one per group each time a sequence fills a block. No step
// waits for the disk: the disk tier's own thread reads blocks, and they are copied once they have
// been read.
//
// Thread safety: used by the engine's thread only. Ownership: refers to `bytes`, which must outlive
// it.
class BlockTiers {
 public:
  // Default of step_bytes. A core copies 64 MiB in about 10 ms, as long as a step with few tokens
  // takes.
  static constexpr int64_t kStepBytes = int64_t{64} << 20;
  // Maximum number of blocks that are being read ahead from the disk.
  static constexpr int64_t kReadAhead = 32;
  // A sequence that has waited this long for its next block computes the remaining tokens instead.
  static constexpr std::chrono::seconds kMostWait{5};

  // `memory`: pieces for max_ram_blocks blocks and for the disk's write queue. `disk` may be null.
  // `counters` must outlive the tiers.
  BlockTiers(BlockBytes& bytes, std::shared_ptr<ByteBlocks> memory, int64_t max_ram_blocks,
             std::shared_ptr<DiskTier> disk, TierCounters& counters,
             int64_t step_bytes = kStepBytes);
  ~BlockTiers();
  BlockTiers(const BlockTiers&) = delete;
  BlockTiers& operator=(const BlockTiers&) = delete;

  // Sets the listener for blocks that the tiers add and remove. It must outlive the tiers. Changes
  // are collected until TellChanges() reports them or DropChanges() discards them.
  void set_listener(TierListener* listener);
  TierListener* listener() const { return listener_; }
  void TellChanges();
  void DropChanges();

  // Resets the limit of moved blocks. Called before each step is planned.
  void BeginStep() { num_moved_ = 0; }
  // Number of blocks that may still be moved in this step. At least two at the start of a step: one
  // to load, and one to evict in its place.
  int64_t num_left() const { return std::max<int64_t>(0, max_moved_ - num_moved_); }

  // Saves a block that is evicted from the pool.
  void Store(const TierKey& key, int64_t group, BlockId block);

  enum class State {
    kAbsent,
    kComing,  // being read from the disk
    kReady,   // Load can copy it
  };
  // Whether a tier has the block. Does not start to read it.
  bool Has(const TierKey& key, int64_t group) const;
  // Starts to read the block if it is on disk. `now`: whether it is the next block to be loaded.
  State Prepare(const TierKey& key, int64_t group, bool now);
  // Copies the content into the pool's block. Returns false if no tier has the block. REQUIRES:
  // Prepare has returned kReady.
  bool Load(const TierKey& key, int64_t group, BlockId block);
  // Waits up to 2 ms if blocks are being read from the disk.
  void WaitForDisk() const;

  struct Named {
    TierKey key;
    int64_t group = 0;
    BlockId block = kNoBlock;
  };
  // Writes the blocks of the pool to the disk, then those in memory, most recently used first,
  // until `max_seconds` have passed. REQUIRES: no blocks are moved afterwards.
  void Save(std::span<const Named> blocks, double max_seconds);

  // Drops all blocks, or with `keeps_disk` only those in memory.
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
  const int64_t max_moved_;  // limit of blocks per step
  int64_t num_moved_ = 0;
  TierListener* listener_ = nullptr;
  std::shared_ptr<TierChanges> changes_;  // null without a listener
};

}  // namespace sluice
