#include "engine/prefix_routes.h"

#include <algorithm>
#include <bit>

#include <xxhash.h>

#include "engine/default_seed.h"

namespace sluice {

PrefixRoutes::PrefixRoutes(int num_engines, int block_size, int64_t num_blocks)
    : block_size_(block_size), secret_(RandomSeed()) {
  if (num_blocks <= 0) return;
  num_buckets_ = std::bit_ceil(std::max<size_t>(1, static_cast<size_t>(num_blocks) / kWays));
  entries_.resize(static_cast<size_t>(num_engines) * num_buckets_ * kWays);
}

std::vector<uint64_t> PrefixRoutes::Chain(std::span<const int32_t> tokens,
                                          std::string_view salt) const {
  if (num_buckets_ == 0) return {};
  const auto size = static_cast<size_t>(block_size_);
  std::vector<uint64_t> chain(tokens.size() / size);
  uint64_t hash = XXH3_64bits_withSeed(salt.data(), salt.size(), secret_);
  for (size_t i = 0; i < chain.size(); ++i) {
    hash = XXH3_64bits_withSeed(tokens.data() + i * size, size * sizeof(int32_t), hash);
    chain[i] = hash;
  }
  return chain;
}

size_t PrefixRoutes::PlaceOf(int engine, uint64_t hash) const {
  const size_t bucket = static_cast<size_t>(engine) * num_buckets_ + (hash & (num_buckets_ - 1));
  return bucket * kWays;
}

int64_t PrefixRoutes::Find(int engine, std::span<const uint64_t> chain) const {
  int64_t found = 0;
  for (const uint64_t hash : chain) {
    const Entry* const bucket = &entries_[PlaceOf(engine, hash)];
    const bool is_there = std::any_of(bucket, bucket + kWays, [hash](const Entry& entry) {
      return entry.hash == hash && entry.given != 0;
    });
    if (!is_there) break;
    ++found;
  }
  return found * block_size_;
}

void PrefixRoutes::Add(int engine, std::span<const uint64_t> chain) {
  // A cache evicts the last blocks of a prompt first, so these blocks get an older clock value
  // here.
  clock_ += chain.size();
  for (size_t i = 0; i < chain.size(); ++i) {
    Entry* const bucket = &entries_[PlaceOf(engine, chain[i])];
    Entry* chosen = bucket;
    for (Entry* entry = bucket; entry != bucket + kWays; ++entry) {
      if (entry->hash == chain[i] && entry->given != 0) {
        chosen = entry;
        break;
      }
      if (entry->given < chosen->given) chosen = entry;
    }
    *chosen = {chain[i], clock_ - i};
  }
}

void PrefixRoutes::Clear() {
  std::fill(entries_.begin(), entries_.end(), Entry{});
}

}  // namespace sluice
