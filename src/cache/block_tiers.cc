#include "cache/block_tiers.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

// Maximum wait for a disk read, so that commands to the engine are not delayed for longer.
constexpr double kWaitSeconds = 0.002;

TierName NameOf(const TierKey& key, int64_t group) {
  return {.digest = key.digest, .group = static_cast<uint32_t>(group)};
}

}  // namespace

BlockTiers::BlockTiers(BlockBytes& bytes, std::shared_ptr<ByteBlocks> memory,
                       int64_t max_ram_blocks, std::shared_ptr<DiskTier> disk,
                       TierCounters& counters, int64_t step_bytes)
    : bytes_(bytes),
      memory_(std::move(memory)),
      disk_(std::move(disk)),
      counters_(counters),
      ram_(max_ram_blocks),
      max_moved_(std::max<int64_t>(2, step_bytes / bytes.bytes_per_block())) {}

BlockTiers::~BlockTiers() {
  counters_.ram_blocks = 0;
}

void BlockTiers::set_listener(TierListener* listener) {
  listener_ = listener;
  changes_ = listener == nullptr ? nullptr : std::make_shared<TierChanges>();
}

void BlockTiers::TellChanges() {
  if (listener_ == nullptr) return;
  for (const TierChange& change : changes_->Take()) listener_->OnTierChange(change);
}

void BlockTiers::DropChanges() {
  if (changes_ != nullptr) changes_->Take();
}

void BlockTiers::Evict() {
  std::optional<RamTier::Kept> oldest = ram_.TakeOldest();
  if (!oldest) return;
  TellMemory(oldest->name, /*is_stored=*/false);
  if (disk_ != nullptr && oldest->is_durable)
    disk_->Write(oldest->name, std::move(oldest->bytes), changes_);
  else
    ++counters_.dropped;
}

void BlockTiers::Store(const TierKey& key, int64_t group, BlockId block) {
  const TierName name = NameOf(key, group);
  if (ram_.Touch(name)) return;
  if (ram_.max_blocks() == 0 && (!key.is_durable || disk_->Has(name))) {
    if (key.is_durable)
      disk_->Tell(name, changes_);
    else
      ++counters_.dropped;
    return;
  }
  while (ram_.max_blocks() > 0 && ram_.size() >= ram_.max_blocks()) Evict();
  HeldBytes piece = memory_->Take();
  if (piece == nullptr) {
    // The memory is full because of the blocks in the disk's write queue.
    Evict();
    piece = memory_->Take();
  }
  if (piece == nullptr) {
    ++counters_.dropped;
    return;
  }
  ++num_moved_;
  bytes_.Read(block, piece.get());
  if (ram_.max_blocks() > 0) {
    ram_.Add({.name = name, .is_durable = key.is_durable, .bytes = std::move(piece)});
    TellMemory(name, /*is_stored=*/true);
    ++counters_.ram_stored;
    counters_.ram_blocks = ram_.size();
  } else {
    disk_->Write(name, std::move(piece), changes_);
  }
}

bool BlockTiers::Has(const TierKey& key, int64_t group) const {
  const TierName name = NameOf(key, group);
  return ram_.Has(name) || (disk_ != nullptr && key.is_durable && disk_->Has(name));
}

BlockTiers::State BlockTiers::Prepare(const TierKey& key, int64_t group, bool now) {
  const TierName name = NameOf(key, group);
  if (ram_.Touch(name)) return State::kReady;
  if (disk_ == nullptr || !key.is_durable) return State::kAbsent;
  disk_->Request(name, now);
  switch (disk_->StateOf(name)) {
    case DiskTier::State::kAbsent: return State::kAbsent;
    case DiskTier::State::kLoaded: return State::kReady;
    case DiskTier::State::kOnDisk:
    case DiskTier::State::kComing: break;
  }
  return State::kComing;
}

bool BlockTiers::Load(const TierKey& key, int64_t group, BlockId block) {
  const TierName name = NameOf(key, group);
  HeldBytes bytes = ram_.Take(name);
  const bool is_in_ram = bytes != nullptr;
  if (is_in_ram) TellMemory(name, /*is_stored=*/false);
  if (!is_in_ram && disk_ != nullptr) bytes = disk_->Take(name);
  if (bytes == nullptr) return false;
  ++num_moved_;
  bytes_.Write(block, bytes.get());
  ++(is_in_ram ? counters_.ram_loaded : counters_.disk_loaded);
  counters_.ram_blocks = ram_.size();
  return true;
}

void BlockTiers::WaitForDisk() const {
  if (disk_ != nullptr) disk_->WaitForOne(kWaitSeconds);
}

void BlockTiers::Save(std::span<const Named> blocks, double max_seconds) {
  using Clock = std::chrono::steady_clock;
  if (disk_ == nullptr) return;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(max_seconds));
  for (const Named& named : blocks) {
    const TierName name = NameOf(named.key, named.group);
    if (!named.key.is_durable || disk_->Has(name)) continue;
    if (!disk_->WaitForRoom(deadline)) return;
    HeldBytes piece = memory_->Take();
    if (piece == nullptr) return;
    bytes_.Read(named.block, piece.get());
    disk_->Write(name, std::move(piece));
  }
  while (std::optional<RamTier::Kept> kept = ram_.TakeNewest()) {
    if (!kept->is_durable || disk_->Has(kept->name)) continue;
    if (!disk_->WaitForRoom(deadline)) return;
    disk_->Write(kept->name, std::move(kept->bytes));
  }
}

void BlockTiers::Clear(bool keeps_disk) {
  while (const std::optional<RamTier::Kept> kept = ram_.TakeOldest())
    TellMemory(kept->name, /*is_stored=*/false);
  counters_.ram_blocks = 0;
  if (disk_ != nullptr && !keeps_disk) disk_->Clear();
}

}  // namespace sluice
