#include "cache/prefix_index.h"

#include <algorithm>
#include <bit>
#include <random>

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

PrefixIndex::PrefixIndex(BlockPool& pool, int block_size)
    : pool_(pool),
      block_size_(block_size),
      secret_(kSecretBytes),
      entries_(static_cast<size_t>(pool.num_blocks())),
      tokens_(static_cast<size_t>(pool.num_blocks() * block_size)),
      buckets_(std::bit_ceil(static_cast<size_t>(pool.num_blocks())), BlockId{-1}) {
  static_assert(kSecretBytes >= XXH3_SECRET_SIZE_MIN);
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

int64_t PrefixIndex::Match(std::span<const int32_t> tokens, int64_t max_blocks,
                           std::string_view salt, PrefixCursor& cursor, BlockList& list) {
  const size_t length = static_cast<size_t>(block_size_);
  int64_t found = 0;
  for (; found < max_blocks && tokens.size() >= length; ++found, tokens = tokens.subspan(length)) {
    const PrefixHash hash = Extend(cursor.hash, tokens.first(length));
    const BlockId block = Find(hash, cursor.last_block, tokens.first(length), salt);
    if (block < 0) break;
    pool_.Share(block, list);
    cursor = {cursor.num_blocks + 1, block, hash};
  }
  return found;
}

PrefixIndex::Found PrefixIndex::Count(std::span<const int32_t> tokens, int64_t max_blocks,
                                      std::string_view salt) const {
  const size_t length = static_cast<size_t>(block_size_);
  PrefixCursor cursor = Start(salt);
  Found found;
  for (; found.blocks < max_blocks && tokens.size() >= length; tokens = tokens.subspan(length)) {
    const PrefixHash hash = Extend(cursor.hash, tokens.first(length));
    const BlockId block = Find(hash, cursor.last_block, tokens.first(length), salt);
    if (block < 0) break;
    ++found.blocks;
    found.unheld += pool_.references(block) == 0;
    cursor = {cursor.num_blocks + 1, block, hash};
  }
  return found;
}

void PrefixIndex::Insert(std::span<const int32_t> tokens, std::string_view salt,
                         PrefixCursor& cursor, BlockList& list) {
  CHECK_EQ(static_cast<int64_t>(tokens.size()), int64_t{block_size_});
  const PrefixHash hash = Extend(cursor.hash, tokens);
  const BlockId own = list[cursor.num_blocks];
  const BlockId known = Find(hash, cursor.last_block, tokens, salt);
  if (known < 0) {
    Entry& entry = entries_[static_cast<size_t>(own)];
    CHECK(!entry.indexed, "block {} is indexed already", own);
    BlockId& bucket = buckets_[Bucket(hash)];
    entry = {hash, cursor.last_block, bucket, true};
    bucket = own;
    std::copy(tokens.begin(), tokens.end(), tokens_.begin() + int64_t{own} * block_size_);
    if (cursor.last_block < 0 && !salt.empty()) salts_.emplace(own, salt);
    pool_.Keep(own);
    ++num_indexed_;
    cursor = {cursor.num_blocks + 1, own, hash};
    return;
  }
  if (known != own) pool_.Replace(list, cursor.num_blocks, known);
  cursor = {cursor.num_blocks + 1, known, hash};
}

bool PrefixIndex::Reset() {
  bool all = true;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const BlockId block = static_cast<BlockId>(i);
    if (!entries_[i].indexed) continue;
    if (pool_.references(block) > 0) {
      all = false;
      continue;
    }
    Remove(block);
    pool_.Forget(block);
  }
  return all;
}

void PrefixIndex::OnEvict(BlockId block) {
  Remove(block);
}

void PrefixIndex::Remove(BlockId block) {
  Entry& entry = entries_[static_cast<size_t>(block)];
  CHECK(entry.indexed, "block {} is not indexed", block);
  BlockId* link = &buckets_[Bucket(entry.hash)];
  while (*link != block) link = &entries_[static_cast<size_t>(*link)].next_in_bucket;
  *link = entry.next_in_bucket;
  if (entry.parent < 0) salts_.erase(block);
  entry = {};
  --num_indexed_;
}

}  // namespace sluice
