// Creates the tiers of an engine's prefix cache from OffloadConfig.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/result.h"
#include "cache/block_tiers.h"
#include "cache/disk_tier.h"
#include "engine/engine_plan.h"
#include "models/cache_bytes.h"
#include "models/model_config.h"

namespace sluice {

// Plans the memory of the tiers (EnginePlan::tier_bytes). If sequences keep states, half of the
// memory, of the disk space and of the write rate is for snapshots. `host`: the memory of a
// device's machine. kUnsupported without a prefix cache. kInvalidArgument if the memory is too
// small for a block or a snapshot. kResourceExhausted if the memory that the plan leaves is too
// little for the tiers.
Status PlanTiers(const ModelConfig& model, const MemoryLimits& host, EnginePlan& plan);

// The memory of the tiers, for plans that are made before the size of a block is known. PlanTiers
// takes more if a block exceeds 4 MiB or a snapshot exceeds 32 MiB, and checks that this memory is
// available.
int64_t MostTierBytes(const OffloadConfig& offload, int num_engines);

// Identifies everything that determines the bytes of a block, except its tokens: the program's
// build, the instruction set, configuration and types, the layout of blocks, and the weight files
// in `folder` (names, sizes, modification times, and samples of their content). kNotFound if the
// folder cannot be read.
Result<TierIdentity> TierIdentityOf(const EnginePlan& plan, const ModelConfig& model,
                                    const std::filesystem::path& folder);

// The disk tiers that all engines of a plan share; null: none. Thread safety: like DiskTier.
struct DiskTiers {
  std::shared_ptr<DiskTier> blocks;
  std::shared_ptr<DiskTier> snapshots;  // null also if sequences keep no states
  // Number of times that an engine has switched to other weights.
  std::shared_ptr<std::atomic<int64_t>> num_switched = std::make_shared<std::atomic<int64_t>>(0);

  // Calls DiskTier's function of the same name for both tiers. After an error neither tier is used.
  Status Use(const TierIdentity& identity) const;
  void Rest() const;
};

// Opens the configured disk tiers. The tier of snapshots is in the subfolder "states".
Result<DiskTiers> OpenDiskTiers(const EnginePlan& plan, const ModelConfig& model);

struct KvTierCounters {
  TierCounters blocks, snapshots;
};

// The tiers of one engine. Ownership: refers to `bytes` and to the counters, which outlive it.
class KvTiers {
 public:
  // kResourceExhausted if the memory cannot be allocated.
  static Result<std::unique_ptr<KvTiers>> Create(const EnginePlan& plan, CacheBytes& bytes,
                                                 const DiskTiers& disks, KvTierCounters& counters);
  ~KvTiers();
  BlockTiers& blocks() { return *blocks_; }
  BlockTiers* snapshots() { return snapshots_.get(); }  // null if sequences keep no states

 private:
  class Pieces;
  KvTiers();

  std::unique_ptr<Pieces> block_bytes_;
  std::unique_ptr<Pieces> snapshot_bytes_;
  std::unique_ptr<BlockTiers> blocks_;
  std::unique_ptr<BlockTiers> snapshots_;
};

TierCounts TierCountsOf(const EnginePlan& plan, const KvTierCounters& counters,
                        const DiskTiers& disks);

}  // namespace sluice
