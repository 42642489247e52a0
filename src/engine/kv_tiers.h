// The tiers of an engine's prefix cache: what its plan makes of OffloadConfig.
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

// Plans the memory of the tiers (EnginePlan::tier_bytes). kUnsupported where blocks cannot be
// moved: on devices, with several ranks, where sequences keep states, without a prefix cache;
// kInvalidArgument where the memory does not hold a block.
Status PlanTiers(EnginePlan& plan);

// Everything that the bits of a block depend on but its tokens: the program's build, the
// instruction set, the configuration and types, the layout of blocks, and the weights' files in
// `folder`: their names, sizes, times of modification, and samples of their content. kNotFound if
// the folder cannot be read.
Result<TierIdentity> TierIdentityOf(const EnginePlan& plan, const ModelConfig& model,
                                    const std::filesystem::path& folder);

// The disk tier, which all engines of the plan share; null if none is asked for.
Result<std::shared_ptr<DiskTier>> OpenDiskTier(const EnginePlan& plan, const ModelConfig& model);

// Ownership: refers to the cache, and counters outlive it.
class KvTiers {
 public:
  // kResourceExhausted if the machine refuses the memory.
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
