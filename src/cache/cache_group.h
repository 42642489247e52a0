// Layers that look back equally far share a group: the blocks of a group are given back once no
// coming token sees them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice {

// A token at position p sees those from the start of its own chunk on, and no farther back than the
// window. 0 means no such limit; a group without limits keeps all positions.
struct CacheGroup {
  int64_t chunk = 0;
  int64_t window = 0;  // the token itself included

  bool keeps_all() const { return chunk == 0 && window == 0; }
  // The first position that a token at `position` sees.
  int64_t FirstSeen(int64_t position) const {
    return std::max(chunk > 0 ? position / chunk * chunk : 0,
                    window > 0 ? std::max<int64_t>(position - window + 1, 0) : 0);
  }
};

inline int64_t BlocksForTokens(int64_t tokens, int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

// The most blocks of the group that a sequence of `tokens` tokens holds at a time, where a step
// computes at most `step_tokens` of them.
inline int64_t MostBlocks(const CacheGroup& group, int64_t tokens, int64_t step_tokens,
                          int64_t block_size) {
  const int64_t all = BlocksForTokens(tokens, block_size);
  if (group.keeps_all()) return all;
  // Positions from what the first token of a step sees to the last one of the step.
  const int64_t back = group.chunk == 0    ? group.window
                       : group.window == 0 ? group.chunk
                                           : std::min(group.chunk, group.window);
  const int64_t positions = back - 1 + step_tokens;
  // They begin with a block where chunks do, and anywhere in one otherwise.
  const bool aligned = group.window == 0 && group.chunk % block_size == 0;
  return std::min(all, aligned ? BlocksForTokens(positions, block_size)
                               : BlocksForTokens(positions - 1, block_size) + 1);
}

}  // namespace sluice
