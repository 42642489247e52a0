// Estimates which prefixes each of several engines has cached from the prompts that were routed to
// it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace sluice {

// For each engine, a table of the prompt blocks that were routed to it last. It has room for about
// as many blocks as the engine's cache. A block's keyed 64-bit hash covers the block and all
// preceding blocks. After a hash collision, a request may be routed to an engine that has less of
// its prefix than expected. Thread safety: one thread at a time, except Chain. Only the constructor
// and Chain allocate.
class PrefixRoutes {
 public:
  // `num_blocks`: number of blocks in each engine's cache; 0: remember nothing.
  PrefixRoutes(int num_engines, int block_size, int64_t num_blocks);

  // Returns hashes of the full blocks of `tokens`, which also depend on the salt. May be called
  // from any thread.
  std::vector<uint64_t> Chain(std::span<const int32_t> tokens, std::string_view salt) const;

  // Returns the number of tokens at the start of `chain` that were routed to the engine before.
  int64_t Find(int engine, std::span<const uint64_t> chain) const;
  // Records that all blocks of `chain` are routed to the engine.
  void Add(int engine, std::span<const uint64_t> chain);
  // Call when the engines' caches have been emptied.
  void Clear();

 private:
  // Number of entries in a bucket; a new block replaces the bucket's oldest entry.
  static constexpr size_t kWays = 8;
  struct Entry {
    uint64_t hash = 0;
    uint64_t given = 0;  // value of clock_ at the last routing; 0: empty
  };
  using Bucket = Entry[kWays];

  size_t PlaceOf(int engine, uint64_t hash) const;

  const int block_size_;
  const uint64_t secret_;
  size_t num_buckets_ = 0;      // per engine: a power of two, or 0
  std::vector<Entry> entries_;  // shape: [engines, num_buckets_, kWays]
  uint64_t clock_ = 0;
};

}  // namespace sluice
