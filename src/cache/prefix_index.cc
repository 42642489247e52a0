#include "cache/prefix_index.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "cache/block_tiers.h"

namespace sluice {
namespace {

PrefixHash HashOf(const KeyedHash& hash, const void* data, size_t size) {
  const auto [high, low] = hash.Of(data, size);
  return {.low = low, .high = high};
}

}  // namespace

PrefixIndex::PrefixIndex(BlockPool& pool, int block_size, std::span<const AttentionSpan> groups,
                         StatePool* states, CacheListener* listener)
    : pool_(pool),
      states_(states),
      listener_(listener),
      block_size_(block_size),
      groups_(groups.empty() ? std::vector<AttentionSpan>(1)
                             : std::vector<AttentionSpan>(groups.begin(), groups.end())),
      entries_(static_cast<size_t>(pool.num_blocks())),
      companions_(static_cast<size_t>(pool.num_blocks() * (num_groups() - 1)), kNoBlock),
      anchors_(static_cast<size_t>(pool.num_blocks()), kNoBlock),
      state_blocks_(states == nullptr ? 0 : static_cast<size_t>(states->num_slots()), kNoBlock),
      tokens_(static_cast<size_t>(pool.num_blocks() * block_size)),
      buckets_(std::bit_ceil(static_cast<size_t>(pool.num_blocks())), kNoBlock),
      present_from_(groups_.size()) {
  CHECK(groups_[0].sees_all());
  pool_.set_evictor(this);
  if (states_ != nullptr) states_->set_evictor(this);
  if (listener_ != nullptr) listener_->OnStart(pool.num_blocks(), block_size, groups_);
}

PrefixIndex::~PrefixIndex() {
  pool_.set_evictor(nullptr);
  if (states_ != nullptr) states_->set_evictor(nullptr);
}

PrefixCursor PrefixIndex::Start(std::string_view salt) const {
  PrefixCursor cursor;
  cursor.hash = HashOf(keyed_hash_, salt.data(), salt.size());
  return cursor;
}

PrefixHash PrefixIndex::Extend(const PrefixHash& parent, std::span<const int32_t> tokens) const {
  // Hashes the pair (parent, hash of the tokens), so that the tokens need not be copied.
  const PrefixHash pair[2] = {parent, HashOf(keyed_hash_, tokens.data(), tokens.size_bytes())};
  return HashOf(keyed_hash_, pair, sizeof(pair));
}

BlockId PrefixIndex::Find(const PrefixHash& hash, BlockId parent, std::span<const int32_t> tokens,
                          std::string_view salt) const {
  for (BlockId block = buckets_[Bucket(hash)]; block >= 0;
       block = entries_[static_cast<size_t>(block)].next_in_bucket) {
    const Entry& entry = entries_[static_cast<size_t>(block)];
    if (!(entry.hash == hash) || entry.parent != parent) continue;
    if (!std::equal(tokens.begin(), tokens.end(), tokens_.begin() + int64_t{block} * block_size_))
      continue;
    if (parent < 0 && SaltOf(block) != salt) continue;
    return block;
  }
  return -1;
}

void PrefixIndex::FindChain(std::span<const int32_t> tokens, int64_t max_blocks,
                            std::string_view salt, PrefixLookup& lookup) {
  std::vector<PrefixHash>& hashes = lookup.hashes;
  std::vector<PrefixLookup::Link>& chain = lookup.chain;
  // A block that is still indexed under this serial has its old content, and so have its parents.
  const auto is_evicted = [this](const PrefixLookup::Link& link) {
    ++num_visits_;
    return entries_[static_cast<size_t>(link.block)].serial != link.serial;
  };
  while (!chain.empty() && is_evicted(chain.back())) chain.pop_back();
  const size_t length = static_cast<size_t>(block_size_);
  const size_t most = std::min(static_cast<size_t>(max_blocks), tokens.size() / length);
  while (chain.size() < most) {
    ++num_visits_;
    const size_t place = chain.size();
    const std::span<const int32_t> block_tokens = tokens.subspan(place * length, length);
    if (hashes.size() == place)
      hashes.push_back(Extend(place == 0 ? Start(salt).hash : hashes.back(), block_tokens));
    const BlockId parent = place == 0 ? kNoBlock : chain.back().block;
    const BlockId block = Find(hashes[place], parent, block_tokens, salt);
    if (block < 0) return;
    chain.push_back({block, entries_[static_cast<size_t>(block)].serial});
  }
}

template <typename Has, typename HasState>
int64_t PrefixIndex::LongestUsable(int64_t usable, const Has& has, const HasState& has_state) {
  const auto skip_to_state = [&] {
    while (usable > 0 && !has_state(usable - 1)) {
      ++num_visits_;
      --usable;
    }
  };
  skip_to_state();
  std::fill(present_from_.begin(), present_from_.end(), usable);
  for (int64_t group = 1; group < num_groups();) {
    int64_t& present = present_from_[static_cast<size_t>(group)];
    present = std::min(present, usable);
    const int64_t needed = FirstNeeded(group, usable);
    while (present > needed) {
      ++num_visits_;
      if (!has(present - 1, group)) break;
      --present;
    }
    if (present <= needed) {
      ++group;
    } else {
      usable = present - 1;
      skip_to_state();
      group = 1;
    }
  }
  return usable;
}

int64_t PrefixIndex::CountUsable(const PrefixLookup& lookup, int64_t max_blocks, bool needs_state) {
  const int64_t most = std::min(static_cast<int64_t>(lookup.chain.size()), max_blocks);
  const auto block_at = [&](int64_t place) {
    return lookup.chain[static_cast<size_t>(place)].block;
  };
  return LongestUsable(
      most, [&](int64_t place, int64_t group) { return CompanionOf(block_at(place), group) >= 0; },
      [&](int64_t place) {
        return !needs_state || entries_[static_cast<size_t>(block_at(place))].state != kNoState;
      });
}

std::vector<PrefixIndex::Absent> PrefixIndex::FindAbsent(std::span<const int32_t> tokens,
                                                         int64_t max_blocks, std::string_view salt,
                                                         PrefixLookup& lookup) {
  const int64_t most = std::min(max_blocks, std::ssize(tokens) / block_size_);
  const int64_t in_pool = std::min(std::ssize(lookup.chain), most);
  const bool needs_state = states_ != nullptr;
  const int64_t found = CountUsable(lookup, most, needs_state);
  int64_t end = in_pool;
  while (end < most && tiers_->Has(KeyAt(tokens, end, salt, lookup), 0)) ++end;
  const auto is_companion_here = [&](int64_t place, int64_t group) {
    return place < in_pool &&
           CompanionOf(lookup.chain[static_cast<size_t>(place)].block, group) >= 0;
  };
  const auto is_state_here = [&](int64_t place) {
    const auto index = static_cast<size_t>(place);
    return place < in_pool &&
           entries_[static_cast<size_t>(lookup.chain[index].block)].state != kNoState;
  };
  const int64_t usable = LongestUsable(
      end,
      [&](int64_t place, int64_t group) {
        return is_companion_here(place, group) ||
               tiers_->Has(KeyAt(tokens, place, salt, lookup), group);
      },
      [&](int64_t place) {
        return !needs_state || is_state_here(place) ||
               state_tiers_->Has(KeyAt(tokens, place, salt, lookup), 0);
      });
  std::vector<Absent> absent;
  if (usable <= found) return absent;
  for (int64_t place = 0; place < usable; ++place) {
    if (place >= in_pool) absent.push_back({place, 0});
    for (int64_t group = 1; group < num_groups(); ++group) {
      if (place >= FirstNeeded(group, usable) && !is_companion_here(place, group))
        absent.push_back({place, group});
    }
  }
  if (needs_state && !is_state_here(usable - 1)) absent.push_back({usable - 1, Absent::kSnapshot});
  return absent;
}

int64_t PrefixIndex::Match(std::span<const int32_t> tokens, int64_t max_blocks,
                           std::string_view salt, PrefixLookup& lookup, PrefixCursor& cursor,
                           BlockTables& tables) {
  CHECK(cursor.num_blocks == 0 && tables.num_groups() == num_groups());
  FindChain(tokens, max_blocks, salt, lookup);
  const int64_t found = CountUsable(lookup, max_blocks, states_ != nullptr);
  if (found == 0) return 0;
  const std::span<const PrefixLookup::Link> chain(lookup.chain.data(), static_cast<size_t>(found));
  for (const PrefixLookup::Link& link : chain) pool_.Share(link.block, tables[0]);
  for (int64_t group = 1; group < num_groups(); ++group) {
    tables[group].StartAt(FirstNeeded(group, found));
    for (int64_t i = tables[group].size(); i < found; ++i)
      pool_.Share(CompanionOf(chain[static_cast<size_t>(i)].block, group), tables[group]);
  }
  cursor = {found, chain.back().block, lookup.hashes[static_cast<size_t>(found - 1)]};
  return found;
}

PrefixIndex::Found PrefixIndex::Count(std::span<const int32_t> tokens, int64_t max_blocks,
                                      std::string_view salt, PrefixLookup& lookup) {
  FindChain(tokens, max_blocks, salt, lookup);
  Found found;
  found.blocks = CountUsable(lookup, max_blocks, states_ != nullptr);
  found.without_states =
      states_ == nullptr ? found.blocks : CountUsable(lookup, max_blocks, /*needs_state=*/false);
  const auto is_held = [this](BlockId block) {
    ++num_visits_;
    return pool_.references(block) > 0;
  };
  // Parents of a held block are held, so the unheld blocks are at the end of the chain.
  const auto begin = lookup.chain.begin(), end = begin + found.blocks;
  found.unheld = end - std::partition_point(begin, end, [&](const PrefixLookup::Link& link) {
                   return is_held(link.block);
                 });
  for (int64_t group = 1; group < num_groups(); ++group) {
    for (int64_t i = FirstNeeded(group, found.blocks); i < found.blocks; ++i)
      found.unheld += !is_held(CompanionOf(lookup.chain[static_cast<size_t>(i)].block, group));
  }
  return found;
}

void PrefixIndex::Insert(std::span<const int32_t> tokens, std::string_view salt,
                         PrefixCursor& cursor, BlockTables& tables) {
  CHECK_EQ(static_cast<int64_t>(tokens.size()), int64_t{block_size_});
  const PrefixHash hash = Extend(cursor.hash, tokens);
  const int64_t place = cursor.num_blocks;
  const BlockId own = tables[0][place];
  BlockId block = Find(hash, cursor.last_block, tokens, salt);
  if (block < 0) {
    block = own;
    AddBlock(own, hash, cursor.last_block, tokens, salt);
  } else if (block != own) {
    pool_.Replace(tables[0], place, block);
  }
  for (int64_t group = 1; group < num_groups(); ++group) {
    const BlockId mine = tables[group][place];
    const BlockId companion = CompanionOf(block, group);
    if (companion < 0) {
      AddCompanion(mine, group, block, tokens, salt);
    } else if (companion != mine) {
      pool_.Replace(tables[group], place, companion);
    }
  }
  cursor = {place + 1, block, hash};
}

void PrefixIndex::AddBlock(BlockId block, const PrefixHash& hash, BlockId parent,
                           std::span<const int32_t> tokens, std::string_view salt) {
  Entry& entry = entries_[static_cast<size_t>(block)];
  CHECK(!entry.indexed(), "block {} is indexed already", block);
  BlockId& bucket = buckets_[Bucket(hash)];
  entry = {.hash = hash, .parent = parent, .next_in_bucket = bucket, .serial = next_serial_++};
  if (parent >= 0) ++entries_[static_cast<size_t>(parent)].num_children;
  bucket = block;
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + int64_t{block} * block_size_);
  if (parent < 0 && !salt.empty()) salts_.emplace(block, salt);
  if (tiers_ != nullptr) {
    keys_[static_cast<size_t>(block)] =
        NextTierKey(parent < 0 ? FirstTierKey(salt) : keys_[static_cast<size_t>(parent)], tokens);
  }
  pool_.Keep(block);
  ++num_indexed_;
  if (listener_ != nullptr) listener_->OnStored(0, block, parent, tokens, salt);
}

void PrefixIndex::AddCompanion(BlockId companion, int64_t group, BlockId anchor,
                               std::span<const int32_t> tokens, std::string_view salt) {
  CHECK(anchors_[static_cast<size_t>(companion)] < 0, "block {} is a companion already", companion);
  CompanionOf(anchor, group) = companion;
  anchors_[static_cast<size_t>(companion)] = anchor;
  pool_.Keep(companion);
  ++num_indexed_;
  if (listener_ == nullptr) return;
  listener_->OnStored(group, anchor, entries_[static_cast<size_t>(anchor)].parent, tokens, salt);
}

void PrefixIndex::SetState(BlockId block, HeldState held, bool is_passing, uint64_t owner) {
  Entry& entry = entries_[static_cast<size_t>(block)];
  CHECK(entry.indexed(), "block {} is not indexed", block);
  if (entry.state != kNoState) {
    states_->Touch(entry.state, owner);
    entry.is_passing = entry.is_passing && is_passing;
    return;
  }
  entry.state = states_->Keep(std::move(held), owner);
  entry.is_passing = is_passing;
  state_blocks_[static_cast<size_t>(entry.state)] = block;
}

StateId PrefixIndex::UseState(BlockId block, uint64_t owner) {
  Entry& entry = entries_[static_cast<size_t>(block)];
  if (entry.state == kNoState) return kNoState;
  states_->Touch(entry.state, owner);
  entry.is_passing = false;
  return entry.state;
}

HeldState PrefixIndex::TakeState(BlockId block) {
  StateId& state = entries_[static_cast<size_t>(block)].state;
  state_blocks_[static_cast<size_t>(state)] = kNoBlock;
  return states_->TakeKept(std::exchange(state, kNoState));
}

HeldState PrefixIndex::TakePassing(BlockId block) {
  const Entry& entry = entries_[static_cast<size_t>(block)];
  return entry.state != kNoState && entry.is_passing ? TakeState(block) : HeldState();
}

PrefixCursor PrefixIndex::LastState(const PrefixCursor& cursor, std::string_view salt) const {
  int64_t num_blocks = cursor.num_blocks;
  for (BlockId block = cursor.last_block; block != kNoBlock; --num_blocks) {
    const Entry& entry = entries_[static_cast<size_t>(block)];
    if (entry.state != kNoState) return {num_blocks, block, entry.hash};
    block = entry.parent;
  }
  return Start(salt);
}

bool PrefixIndex::Reset(bool keeps_disk) {
  if (tiers_ != nullptr) tiers_->Clear(keeps_disk);
  if (state_tiers_ != nullptr) state_tiers_->Clear(keeps_disk);
  is_resetting_ = true;
  const auto is_indexed = [this](size_t i) { return entries_[i].indexed() || anchors_[i] >= 0; };
  const auto is_held = [this](size_t i) { return pool_.references(static_cast<BlockId>(i)) > 0; };
  bool all = true;
  for (size_t i = 0; i < entries_.size(); ++i) all = all && !(is_indexed(i) && is_held(i));
  // Reports the removal of all blocks as a single event.
  CacheListener* const listener = all ? std::exchange(listener_, nullptr) : listener_;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!is_indexed(i) || is_held(i)) continue;
    OnEvict(static_cast<BlockId>(i));
    pool_.Forget(static_cast<BlockId>(i));
  }
  listener_ = listener;
  is_resetting_ = false;
  if (all && tiers_ != nullptr) tiers_->DropChanges();
  if (all && listener_ != nullptr) listener_->OnCleared();
  return all;
}

void PrefixIndex::Tell(CacheListener& listener) const {
  listener.OnCleared();
  // A block is indexed after its parent, so serials ascend along each chain.
  std::vector<BlockId> order;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].indexed()) order.push_back(static_cast<BlockId>(i));
  }
  const auto entry_of = [this](BlockId block) -> const Entry& {
    return entries_[static_cast<size_t>(block)];
  };
  std::sort(order.begin(), order.end(),
            [&](BlockId a, BlockId b) { return entry_of(a).serial < entry_of(b).serial; });
  std::vector<BlockId> firsts(entries_.size());  // for each block, the first block of its chain
  for (const BlockId block : order) {
    const BlockId parent = entry_of(block).parent;
    const BlockId first = parent < 0 ? block : firsts[static_cast<size_t>(parent)];
    firsts[static_cast<size_t>(block)] = first;
    const std::span<const int32_t> tokens(tokens_.data() + int64_t{block} * block_size_,
                                          static_cast<size_t>(block_size_));
    for (int64_t group = 0; group < num_groups(); ++group) {
      if (group > 0 && CompanionOf(block, group) < 0) continue;
      listener.OnStored(group, block, parent, tokens, SaltOf(first));
    }
  }
}

void PrefixIndex::OnEvict(BlockId block) {
  if (tiers_ != nullptr && !is_resetting_) Store(block);
  if (anchors_[static_cast<size_t>(block)] >= 0)
    RemoveCompanion(block);
  else
    Remove(block);
}

void PrefixIndex::OnEvictState(StateId slot) {
  const BlockId block = std::exchange(state_blocks_[static_cast<size_t>(slot)], kNoBlock);
  if (state_tiers_ != nullptr && !is_resetting_) StoreSnapshot(block, slot);
  entries_[static_cast<size_t>(block)].state = kNoState;
}

void PrefixIndex::Remove(BlockId block) {
  Entry& entry = entries_[static_cast<size_t>(block)];
  CHECK(entry.indexed(), "block {} is not indexed", block);
  if (entry.state != kNoState) {
    if (state_tiers_ != nullptr && !is_resetting_) StoreSnapshot(block, entry.state);
    state_blocks_[static_cast<size_t>(entry.state)] = kNoBlock;
    states_->Drop(entry.state);
  }
  for (int64_t group = 1; group < num_groups(); ++group) {
    const BlockId companion = CompanionOf(block, group);
    if (companion < 0) continue;
    RemoveCompanion(companion);
    pool_.Forget(companion);
  }
  BlockId* link = &buckets_[Bucket(entry.hash)];
  while (*link != block) link = &entries_[static_cast<size_t>(*link)].next_in_bucket;
  *link = entry.next_in_bucket;
  if (entry.parent < 0) {
    salts_.erase(block);
  } else if (Entry& parent = entries_[static_cast<size_t>(entry.parent)]; parent.indexed()) {
    --parent.num_children;
  }
  entry = {};
  --num_indexed_;
  if (listener_ != nullptr) listener_->OnRemoved(0, block);
}

void PrefixIndex::RemoveCompanion(BlockId block) {
  const BlockId anchor = std::exchange(anchors_[static_cast<size_t>(block)], kNoBlock);
  for (int64_t group = 1; group < num_groups(); ++group) {
    if (CompanionOf(anchor, group) != block) continue;
    CompanionOf(anchor, group) = kNoBlock;
    if (listener_ != nullptr) listener_->OnRemoved(group, anchor);
  }
  --num_indexed_;
}

Status PrefixIndex::CheckInvariant() const {
  const auto fail = [](std::string message) {
    return Fail(ErrorCode::kInternal, std::move(message));
  };
  const size_t others = groups_.size() - 1;
  int64_t indexed = 0, companions = 0, anchors = 0;
  std::vector<int32_t> children(entries_.size());
  for (const Entry& entry : entries_) {
    if (entry.indexed() && entry.parent >= 0) ++children[static_cast<size_t>(entry.parent)];
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    indexed += entry.indexed();
    anchors += anchors_[i] >= 0;
    if (entry.indexed() && anchors_[i] >= 0)
      return fail(fmt::format("block {} is of two groups", i));
    if (entry.indexed() && entry.parent >= 0 &&
        !entries_[static_cast<size_t>(entry.parent)].indexed())
      return fail(fmt::format("the parent of block {} is not indexed", i));
    if (entry.indexed() && entry.num_children != children[i])
      return fail(
          fmt::format("{} children of block {}, not {}", children[i], i, entry.num_children));
    for (size_t group = 0; group < others; ++group) {
      const BlockId companion = companions_[i * others + group];
      if (companion < 0) continue;
      ++companions;
      if (!entry.indexed() || anchors_[static_cast<size_t>(companion)] != static_cast<BlockId>(i))
        return fail(fmt::format("block {} has a companion that belongs to another block", i));
    }
  }
  int64_t snapshots = 0;
  for (size_t slot = 0; slot < state_blocks_.size(); ++slot) {
    const BlockId block = state_blocks_[slot];
    if (block == kNoBlock) continue;
    ++snapshots;
    const Entry& entry = entries_[static_cast<size_t>(block)];
    if (!entry.indexed() || entry.state != static_cast<StateId>(slot))
      return fail(
          fmt::format("slot {} is the snapshot of a block that does not refer to it", slot));
  }
  if (states_ != nullptr && snapshots != states_->num_kept()) {
    return fail(
        fmt::format("{} blocks have snapshots, but {} are kept", snapshots, states_->num_kept()));
  }
  if (companions != anchors || indexed + companions != num_indexed_) {
    return fail(fmt::format("{} blocks and {}/{} companions, but {} indexed", indexed, companions,
                            anchors, num_indexed_));
  }
  return {};
}

}  // namespace sluice
