// Creates the tiers of an engine's prefix cache from OffloadConfig.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/result.h"
#include "cache/block_tiers.h"
#include "cache/disk_tier.h"
#include "engine/engine_plan.h"
#include "models/kv_cache.h"
#include "models/model_config.h"

namespace sluice {

// Plans the memory of the tiers (EnginePlan::tier_bytes). kUnsupported if blocks cannot be moved:
// on devices, with several ranks, if sequences keep states, or without a prefix cache.
// kInvalidArgument if the memory is too small for a block.
Status PlanTiers(EnginePlan& plan);

// Identifies everything that determines the bytes of a block, except its tokens: the program's
// build, the instruction set, configuration and types, the layout of blocks, and the weight files
// in `folder` (names, sizes, modification times, and samples of their content). kNotFound if the
// folder cannot be read.
Result<TierIdentity> TierIdentityOf(const EnginePlan& plan, const ModelConfig& model,
                                    const std::filesystem::path& folder);

// Opens the disk tier that all engines of the plan share; null if none is configured.
Result<std::shared_ptr<DiskTier>> OpenDiskTier(const EnginePlan& plan, const ModelConfig& model);

// The tiers of one engine. Ownership: refers to the cache and to the counters, which outlive it.
class KvTiers {
 public:
  // kResourceExhausted if the memory cannot be allocated.
  static Result<std::unique_ptr<KvTiers>> Create(const EnginePlan& plan, const KvCache& cache,
                                                 std::shared_ptr<DiskTier> disk,
                                                 TierCounters& counters);
  ~KvTiers();
  BlockTiers& tiers() { return *tiers_; }

 private:
  class Bytes;
  KvTiers();

  std::unique_ptr<Bytes> bytes_;
  std::unique_ptr<BlockTiers> tiers_;
};

TierCounts TierCountsOf(const EnginePlan& plan, const TierCounters& counters, const DiskTier* disk);

}  // namespace sluice
