// How many KV blocks a sequence needs. Layers with the same attention span form a group; a group's
// blocks are released once no later token attends to them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/attention_span.h"

namespace sluice {

inline int64_t BlocksForTokens(int64_t tokens, int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

// Returns the maximum number of blocks that a sequence of `tokens` tokens holds at any time in a
// group with this span. A step computes at most `step_tokens` of the sequence's tokens.
inline int64_t MostBlocks(const AttentionSpan& span, int64_t tokens, int64_t step_tokens,
                          int64_t block_size) {
  const int64_t all = BlocksForTokens(tokens, block_size);
  if (span.sees_all()) return all;
  // Number of positions from the earliest one that the step's first token attends to, up to the
  // step's last token.
  const int64_t back = span.chunk == 0    ? span.window
                       : span.window == 0 ? span.chunk
                                          : std::min(span.chunk, span.window);
  const int64_t positions = back - 1 + step_tokens;
  // The range starts at a block boundary if chunks do; otherwise it may start inside a block.
  const bool aligned = span.window == 0 && span.chunk % block_size == 0;
  return std::min(all, aligned ? BlocksForTokens(positions, block_size)
                               : BlocksForTokens(positions - 1, block_size) + 1);
}

}  // namespace sluice
