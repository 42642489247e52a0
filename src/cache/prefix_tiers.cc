// The part of PrefixIndex that stores evicted blocks in the tiers and restores them.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/block_tiers.h"
#include "cache/prefix_index.h"

namespace sluice {

void PrefixIndex::UseTiers(BlockTiers* tiers, BlockTiers* states) {
  CHECK(num_indexed_ == 0 && (tiers == nullptr || (states == nullptr) == (states_ == nullptr)));
  tiers_ = tiers;
  state_tiers_ = states;
  keys_.resize(tiers == nullptr ? 0 : entries_.size());
}

void PrefixIndex::BeginStep() {
  if (tiers_ != nullptr) tiers_->BeginStep();
  if (state_tiers_ != nullptr) state_tiers_->BeginStep();
}

template <typename Visit>
void PrefixIndex::ForEachGone(BlockId block, const Visit& visit) const {
  const BlockId anchor = anchors_[static_cast<size_t>(block)];
  const BlockId named = anchor >= 0 ? anchor : block;
  const TierKey& key = keys_[static_cast<size_t>(named)];
  if (anchor < 0) visit(key, 0, block);
  for (int64_t group = 1; group < num_groups(); ++group) {
    const BlockId companion = CompanionOf(named, group);
    if (companion >= 0 && (anchor < 0 || companion == block)) visit(key, group, companion);
  }
}

void PrefixIndex::Store(BlockId block) {
  ForEachGone(block, [this](const TierKey& key, int64_t group, BlockId gone) {
    if (TierListener* const listener = tiers_->listener(); listener != nullptr) {
      const BlockId named = group == 0 ? gone : anchors_[static_cast<size_t>(gone)];
      const BlockId parent = entries_[static_cast<size_t>(named)].parent;
      const auto length = static_cast<size_t>(block_size_);
      listener->OnTierName({.digest = key.digest, .group = static_cast<uint32_t>(group)}, group,
                           named, parent,
                           std::span(tokens_).subspan(static_cast<size_t>(named) * length, length),
                           parent == kNoBlock ? SaltOf(named) : std::string_view());
    }
    tiers_->Store(key, group, gone);
  });
}

void PrefixIndex::StoreSnapshot(BlockId block, StateId slot) {
  state_tiers_->Store(keys_[static_cast<size_t>(block)], 0, slot);
}

void PrefixIndex::SaveToDisk(double max_seconds) {
  using Clock = std::chrono::steady_clock;
  if (tiers_ == nullptr) return;
  const auto start = Clock::now();
  if (state_tiers_ != nullptr) {
    // Blocks are useless without a snapshot, so snapshots are written first, in half of the time.
    std::vector<BlockTiers::Named> snapshots;
    for (size_t slot = 0; slot < state_blocks_.size(); ++slot) {
      if (const BlockId block = state_blocks_[slot]; block != kNoBlock)
        snapshots.push_back({keys_[static_cast<size_t>(block)], 0, static_cast<StateId>(slot)});
    }
    state_tiers_->Save(snapshots, max_seconds / 2);
  }
  std::vector<BlockTiers::Named> blocks;
  // Evicting all blocks yields them in order of last use. Meanwhile, their bytes in the pool do not
  // change.
  is_resetting_ = true;
  while (const auto next = pool_.NextEvicted()) {
    ForEachGone(*next, [&](const TierKey& key, int64_t group, BlockId gone) {
      blocks.push_back({key, group, gone});
    });
    pool_.EvictOne();
  }
  is_resetting_ = false;
  std::ranges::reverse(blocks);
  tiers_->Save(blocks, max_seconds - std::chrono::duration<double>(Clock::now() - start).count());
}

const TierKey& PrefixIndex::KeyAt(std::span<const int32_t> tokens, int64_t place,
                                  std::string_view salt, PrefixLookup& lookup) const {
  const auto length = static_cast<size_t>(block_size_);
  while (std::ssize(lookup.keys) <= place) {
    const std::span<const int32_t> block = tokens.subspan(lookup.keys.size() * length, length);
    lookup.keys.push_back(
        NextTierKey(lookup.keys.empty() ? FirstTierKey(salt) : lookup.keys.back(), block));
  }
  return lookup.keys[static_cast<size_t>(place)];
}

std::vector<BlockList> PrefixIndex::HoldFound(const PrefixLookup& lookup, int64_t found,
                                              uint64_t owner) {
  std::vector<BlockList> held(groups_.size());
  for (int64_t group = num_groups() - 1; group >= 0; --group) {
    BlockList& list = held[static_cast<size_t>(group)];
    list.set_owner(owner);
    for (int64_t place = group == 0 ? 0 : FirstNeeded(group, found); place < found; ++place) {
      const BlockId anchor = lookup.chain[static_cast<size_t>(place)].block;
      const BlockId block = group == 0 ? anchor : CompanionOf(anchor, group);
      if (block >= 0) pool_.Share(block, list);
    }
  }
  return held;
}

bool PrefixIndex::RestoreOne(std::span<const int32_t> tokens, const Absent& absent,
                             std::string_view salt, PrefixLookup& lookup, BlockList& held) {
  const auto [place, group] = absent;
  if (!pool_.Take(1, held)) return false;
  const BlockId block = held[held.size() - 1];
  if (!tiers_->Load(KeyAt(tokens, place, salt, lookup), group, block)) {
    held.PopBack();
    return false;
  }
  const auto length = static_cast<size_t>(block_size_);
  const auto own = tokens.subspan(static_cast<size_t>(place) * length, length);
  if (group == 0) {
    CHECK_EQ(place, std::ssize(lookup.chain));
    const BlockId parent = place == 0 ? kNoBlock : lookup.chain.back().block;
    AddBlock(block, lookup.hashes[static_cast<size_t>(place)], parent, own, salt);
    lookup.chain.push_back({block, entries_[static_cast<size_t>(block)].serial});
    ++lookup.num_restored_places;
  } else {
    AddCompanion(block, group, lookup.chain[static_cast<size_t>(place)].block, own, salt);
  }
  ++lookup.num_restored;
  return true;
}

bool PrefixIndex::RestoreSnapshot(std::span<const int32_t> tokens, int64_t place,
                                  std::string_view salt, PrefixLookup& lookup, uint64_t owner) {
  HeldState held = states_->Take();
  if (held.id() == kNoState ||
      !state_tiers_->Load(KeyAt(tokens, place, salt, lookup), 0, held.id()))
    return false;
  SetState(lookup.chain[static_cast<size_t>(place)].block, std::move(held), /*is_passing=*/false,
           owner);
  ++lookup.num_restored;
  return true;
}

bool PrefixIndex::Restore(std::span<const int32_t> tokens, int64_t max_blocks,
                          std::string_view salt, PrefixLookup& lookup, uint64_t owner) {
  using Clock = std::chrono::steady_clock;
  if (tiers_ == nullptr || max_blocks <= 0) return true;
  const int64_t kinds = num_groups() + (state_tiers_ == nullptr ? 0 : 1);
  if (lookup.num_restored >= max_blocks * kinds) return true;
  if (lookup.gave_up) return true;
  const auto now = Clock::now();
  const auto until = std::exchange(lookup.restores_until, std::nullopt);
  if (until && now > *until) {
    lookup.gave_up = true;
    return true;
  }
  FindChain(tokens, max_blocks, salt, lookup);
  const std::vector<Absent> absent = FindAbsent(tokens, max_blocks, salt, lookup);
  if (absent.empty()) return true;
  const auto prepare = [&](const Absent& one, bool is_next) {
    const TierKey& key = KeyAt(tokens, one.place, salt, lookup);
    return one.group == Absent::kSnapshot ? state_tiers_->Prepare(key, 0, is_next)
                                          : tiers_->Prepare(key, one.group, is_next);
  };
  // The snapshot is last in the list, because reading it takes longest.
  if (absent.back().group == Absent::kSnapshot) prepare(absent.back(), false);
  for (size_t i = 0; i < absent.size() && i < BlockTiers::kReadAhead; ++i)
    prepare(absent[i], i == 0);
  bool moved = false;
  const auto wait = [&] {
    lookup.restores_until =
        moved ? now + BlockTiers::kMostWait : until.value_or(now + BlockTiers::kMostWait);
    return false;
  };
  // Holds references to the blocks that were found, so that restored blocks do not evict them.
  std::vector<BlockList> held = HoldFound(lookup, std::ssize(lookup.chain), owner);
  for (size_t i = 0; i < absent.size(); ++i) {
    const bool is_snapshot = absent[i].group == Absent::kSnapshot;
    const int64_t left = (is_snapshot ? state_tiers_ : tiers_)->num_left();
    const int64_t num_free = is_snapshot ? states_->num_free() : pool_.num_free();
    if (left < (num_free > 0 ? 1 : 2)) return wait();
    const BlockTiers::State state = prepare(absent[i], true);
    if (state == BlockTiers::State::kComing) return wait();
    const auto& [place, group] = absent[i];
    if (group == 0 && std::ssize(lookup.hashes) == place) {
      const auto length = static_cast<size_t>(block_size_);
      lookup.hashes.push_back(Extend(place == 0 ? Start(salt).hash : lookup.hashes.back(),
                                     tokens.subspan(static_cast<size_t>(place) * length, length)));
    }
    if (state == BlockTiers::State::kAbsent) return true;
    const bool is_restored =
        is_snapshot ? RestoreSnapshot(tokens, place, salt, lookup, owner)
                    : RestoreOne(tokens, absent[i], salt, lookup, held[static_cast<size_t>(group)]);
    if (!is_restored) return true;
    moved = true;
    if (i + BlockTiers::kReadAhead < absent.size())
      prepare(absent[i + BlockTiers::kReadAhead], false);
  }
  return true;
}

bool PrefixIndex::MakeRoom(const PrefixLookup& lookup, int64_t found, int64_t count,
                           uint64_t owner) {
  if (tiers_ == nullptr || pool_.num_free() >= count) return true;
  const std::vector<BlockList> held = HoldFound(lookup, found, owner);
  while (pool_.num_free() < count && tiers_->num_left() > 0 && pool_.EvictOne()) {
  }
  return pool_.num_free() >= count || pool_.num_cached() == 0;
}

}  // namespace sluice
