// Estimates which prefixes each of several engines has cached, from the prompts that it was given.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace sluice {

// For each engine, a table of the last prompt blocks that it was given, about as many as its cache
// has. A block's keyed 64-bit hash covers all preceding blocks, too. On a collision, a request goes
// to an engine that has less of its prefix than expected. Thread safety: one thread at a time,
// except Chain. Only the constructor and Chain allocate.
class PrefixRoutes {
 public:
  // `num_blocks`: of each engine's cache; 0: remember nothing.
  PrefixRoutes(int num_engines, int block_size, int64_t num_blocks);

  // Hashes of the full blocks of `tokens`; they depend on the salt, too. May be called from any
  // thread.
  std::vector<uint64_t> Chain(std::span<const int32_t> tokens, std::string_view salt) const;

  // Number of tokens at the start of `chain` that the engine was given before.
  int64_t Find(int engine, std::span<const uint64_t> chain) const;
  // Records that the engine is given all blocks of `chain`.
  void Add(int engine, std::span<const uint64_t> chain);
  // Call when the engines' caches were emptied.
  void Clear();

 private:
  // Entries of a bucket; a new block replaces the oldest entry.
  static constexpr size_t kWays = 8;
  struct Entry {
    uint64_t hash = 0;
    uint64_t given = 0;  // clock_ when last given; 0: empty
  };
  using Bucket = Entry[kWays];

  size_t PlaceOf(int engine, uint64_t hash) const;

  const int block_size_;
  const uint64_t secret_;
  size_t num_buckets_ = 0;      // per engine: a power of two, or 0
  std::vector<Entry> entries_;  // [engines, num_buckets_, kWays]
  uint64_t clock_ = 0;
};

}  // namespace sluice
