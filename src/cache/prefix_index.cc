#include "cache/prefix_index.h"

#include <algorithm>
#include <bit>
#include <random>
#include <utility>

#include <xxhash.h>

#include "base/check.h"

namespace sluice {
namespace {

constexpr size_t kSecretBytes = 192;

PrefixHash Hash(const std::vector<unsigned char>& secret, const void* data, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits_withSecret(data, size, secret.data(), secret.size());
  return {hash.low64, hash.high64};
}

}  // namespace

PrefixIndex::PrefixIndex(BlockPool& pool, int block_size, std::span<const AttentionSpan> groups)
    : pool_(pool),
      block_size_(block_size),
      groups_(groups.empty() ? std::vector<AttentionSpan>(1)
                             : std::vector<AttentionSpan>(groups.begin(), groups.end())),
      secret_(kSecretBytes),
      entries_(static_cast<size_t>(pool.num_blocks())),
      companions_(static_cast<size_t>(pool.num_blocks() * (num_groups() - 1)), kNoBlock),
      anchors_(static_cast<size_t>(pool.num_blocks()), kNoBlock),
      tokens_(static_cast<size_t>(pool.num_blocks() * block_size)),
      buckets_(std::bit_ceil(static_cast<size_t>(pool.num_blocks())), kNoBlock),
      run_starts_(groups_.size()) {
  static_assert(kSecretBytes >= XXH3_SECRET_SIZE_MIN);
  CHECK(groups_[0].sees_all());
  chain_.reserve(static_cast<size_t>(pool.num_blocks()));
  std::random_device random;
  for (unsigned char& byte : secret_) byte = static_cast<unsigned char>(random());
  pool_.set_evictor(this);
}

PrefixIndex::~PrefixIndex() {
  pool_.set_evictor(nullptr);
}

PrefixCursor PrefixIndex::Start(std::string_view salt) const {
  PrefixCursor cursor;
  cursor.hash = Hash(secret_, salt.data(), salt.size());
  return cursor;
}

PrefixHash PrefixIndex::Extend(const PrefixHash& parent, std::span<const int32_t> tokens) const {
  // The tokens' own hash first, then one over (parent, that): no copy of the tokens.
  const PrefixHash pair[2] = {parent, Hash(secret_, tokens.data(), tokens.size_bytes())};
  return Hash(secret_, pair, sizeof(pair));
}

BlockId PrefixIndex::Find(const PrefixHash& hash, BlockId parent, std::span<const int32_t> tokens,
                          std::string_view salt) const {
  for (BlockId block = buckets_[Bucket(hash)]; block >= 0;
       block = entries_[static_cast<size_t>(block)].next_in_bucket) {
    const Entry& entry = entries_[static_cast<size_t>(block)];
    if (!(entry.hash == hash) || entry.parent != parent) continue;
    if (!std::equal(tokens.begin(), tokens.end(), tokens_.begin() + int64_t{block} * block_size_))
      continue;
    if (parent < 0) {
      const auto found = salts_.find(block);
      if ((found == salts_.end() ? std::string_view() : std::string_view(found->second)) != salt)
        continue;
    }
    return block;
  }
  return -1;
}

void PrefixIndex::FindChain(std::span<const int32_t> tokens, int64_t max_blocks,
                            std::string_view salt) {
  const size_t length = static_cast<size_t>(block_size_);
  chain_.clear();
  std::fill(run_starts_.begin(), run_starts_.end(), 0);
  size_t usable = 0;
  PrefixCursor cursor = Start(salt);
  for (; cursor.num_blocks < max_blocks && tokens.size() >= length;
       tokens = tokens.subspan(length)) {
    const PrefixHash hash = Extend(cursor.hash, tokens.first(length));
    const BlockId block = Find(hash, cursor.last_block, tokens.first(length), salt);
    if (block < 0) break;
    cursor = {cursor.num_blocks + 1, block, hash};
    chain_.push_back(block);
    bool complete = true;
    for (int64_t group = 1; group < num_groups(); ++group) {
      int64_t& run_start = run_starts_[static_cast<size_t>(group)];
      if (CompanionOf(block, group) < 0) run_start = cursor.num_blocks;
      complete = complete && run_start <= FirstNeeded(group, cursor.num_blocks);
    }
    if (complete) usable = chain_.size();
  }
  chain_.resize(usable);
}

int64_t PrefixIndex::Match(std::span<const int32_t> tokens, int64_t max_blocks,
                           std::string_view salt, PrefixCursor& cursor, BlockTables& tables) {
  CHECK(cursor.num_blocks == 0 && tables.num_groups() == num_groups());
  FindChain(tokens, max_blocks, salt);
  if (chain_.empty()) return 0;
  const int64_t found = static_cast<int64_t>(chain_.size());
  for (const BlockId block : chain_) pool_.Share(block, tables[0]);
  for (int64_t group = 1; group < num_groups(); ++group) {
    tables[group].StartAt(FirstNeeded(group, found));
    for (int64_t i = tables[group].size(); i < found; ++i)
      pool_.Share(CompanionOf(chain_[static_cast<size_t>(i)], group), tables[group]);
  }
  cursor = {found, chain_.back(), entries_[static_cast<size_t>(chain_.back())].hash};
  return found;
}

PrefixIndex::Found PrefixIndex::Count(std::span<const int32_t> tokens, int64_t max_blocks,
                                      std::string_view salt) {
  FindChain(tokens, max_blocks, salt);
  Found found;
  found.blocks = static_cast<int64_t>(chain_.size());
  for (const BlockId block : chain_) found.unheld += pool_.references(block) == 0;
  for (int64_t group = 1; group < num_groups(); ++group) {
    for (int64_t i = FirstNeeded(group, found.blocks); i < found.blocks; ++i)
      found.unheld += pool_.references(CompanionOf(chain_[static_cast<size_t>(i)], group)) == 0;
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
    Entry& entry = entries_[static_cast<size_t>(own)];
    CHECK(!entry.indexed, "block {} is indexed already", own);
    BlockId& bucket = buckets_[Bucket(hash)];
    entry = {hash, cursor.last_block, bucket, true};
    bucket = own;
    std::copy(tokens.begin(), tokens.end(), tokens_.begin() + int64_t{own} * block_size_);
    if (cursor.last_block < 0 && !salt.empty()) salts_.emplace(own, salt);
    pool_.Keep(own);
    ++num_indexed_;
  } else if (block != own) {
    pool_.Replace(tables[0], place, block);
  }
  for (int64_t group = 1; group < num_groups(); ++group) {
    const BlockId mine = tables[group][place];
    BlockId& companion = CompanionOf(block, group);
    if (companion < 0) {
      CHECK(anchors_[static_cast<size_t>(mine)] < 0, "block {} is a companion already", mine);
      companion = mine;
      anchors_[static_cast<size_t>(mine)] = block;
      pool_.Keep(mine);
      ++num_indexed_;
    } else if (companion != mine) {
      pool_.Replace(tables[group], place, companion);
    }
  }
  cursor = {place + 1, block, hash};
}

bool PrefixIndex::Reset() {
  bool all = true;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const BlockId block = static_cast<BlockId>(i);
    const bool is_companion = anchors_[i] >= 0;
    if (!entries_[i].indexed && !is_companion) continue;
    if (pool_.references(block) > 0) {
      all = false;
      continue;
    }
    if (is_companion)
      RemoveCompanion(block);
    else
      Remove(block);
    pool_.Forget(block);
  }
  return all;
}

void PrefixIndex::OnEvict(BlockId block) {
  if (anchors_[static_cast<size_t>(block)] >= 0)
    RemoveCompanion(block);
  else
    Remove(block);
}

void PrefixIndex::Remove(BlockId block) {
  Entry& entry = entries_[static_cast<size_t>(block)];
  CHECK(entry.indexed, "block {} is not indexed", block);
  for (int64_t group = 1; group < num_groups(); ++group) {
    const BlockId companion = CompanionOf(block, group);
    if (companion < 0) continue;
    RemoveCompanion(companion);
    pool_.Forget(companion);
  }
  BlockId* link = &buckets_[Bucket(entry.hash)];
  while (*link != block) link = &entries_[static_cast<size_t>(*link)].next_in_bucket;
  *link = entry.next_in_bucket;
  if (entry.parent < 0) salts_.erase(block);
  entry = {};
  --num_indexed_;
}

void PrefixIndex::RemoveCompanion(BlockId block) {
  const BlockId anchor = std::exchange(anchors_[static_cast<size_t>(block)], kNoBlock);
  for (int64_t group = 1; group < num_groups(); ++group) {
    if (CompanionOf(anchor, group) == block) CompanionOf(anchor, group) = kNoBlock;
  }
  --num_indexed_;
}

Status PrefixIndex::CheckInvariant() const {
  const auto fail = [](std::string message) {
    return Fail(ErrorCode::kInternal, std::move(message));
  };
  const size_t others = groups_.size() - 1;
  int64_t indexed = 0, companions = 0, anchors = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    indexed += entry.indexed;
    anchors += anchors_[i] >= 0;
    if (entry.indexed && anchors_[i] >= 0) return fail(fmt::format("block {} is of two groups", i));
    if (entry.indexed && entry.parent >= 0 && !entries_[static_cast<size_t>(entry.parent)].indexed)
      return fail(fmt::format("the parent of block {} is not indexed", i));
    for (size_t group = 0; group < others; ++group) {
      const BlockId companion = companions_[i * others + group];
      if (companion < 0) continue;
      ++companions;
      if (!entry.indexed || anchors_[static_cast<size_t>(companion)] != static_cast<BlockId>(i))
        return fail(fmt::format("block {} has a companion that is not its own", i));
    }
  }
  if (companions != anchors || indexed + companions != num_indexed_) {
    return fail(fmt::format("{} blocks and {}/{} companions, but {} indexed", indexed, companions,
                            anchors, num_indexed_));
  }
  return {};
}

}  // namespace sluice
