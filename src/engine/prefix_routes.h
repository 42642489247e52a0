// What several engines hold of prompts, as far as that can be known from outside: which prompts
// each was given.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace sluice {

// For each engine a table of the blocks of prompts that it was given last, about as many as its
// cache has; a block stands for all that comes before it, too. A block is known by a keyed hash of
// 64 bits: should two collide, a request goes to an engine that has less of its prefix than was
// thought. Thread safety: one thread at a time, but for Chain. Allocates nothing after construction
// but what Chain returns.
class PrefixRoutes {
 public:
  // `num_blocks`: of each engine's cache; 0: nothing is remembered.
  PrefixRoutes(int num_engines, int block_size, int64_t num_blocks);

  // The hashes of the full blocks of `tokens`, of prompts of equal salt. From any thread.
  std::vector<uint64_t> Chain(std::span<const int32_t> tokens, std::string_view salt) const;

  // How many tokens at the start of the chain the engine has been given before.
  int64_t Find(int engine, std::span<const uint64_t> chain) const;
  // The engine is given all of it.
  void Add(int engine, std::span<const uint64_t> chain);
  // The caches are empty.
  void Clear();

 private:
  // Blocks that may stand in one place of a table; the one that was given first makes room.
  static constexpr size_t kWays = 8;
  struct Entry {
    uint64_t hash = 0;
    uint64_t given = 0;  // when, in blocks; 0: none
  };
  using Bucket = Entry[kWays];

  size_t PlaceOf(int engine, uint64_t hash) const;

  const int block_size_;
  const uint64_t secret_;
  size_t num_buckets_ = 0;      // of each engine: a power of two, or 0
  std::vector<Entry> entries_;  // [engines, num_buckets_, kWays]
  uint64_t clock_ = 0;
};

}  // namespace sluice
