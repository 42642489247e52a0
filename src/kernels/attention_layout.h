// How keys and values lie inside a block of the cache: known to the attention operator alone.
//
// A head's keys (and values) in one block take block_size * head_dim elements. Where block_size is
// a multiple of 16 they lie in panels of 16 positions, the form in which the kernels read them
// (kernel_table.h, AttentionChunkArgs): keys have the positions side by side, as a weight has its
// output rows; values have the elements of a head side by side, and BF16 ones also pair
// neighbouring positions. Other block sizes hold plain rows [block_size, head_dim], which are
// brought into panels when they are read: correct, and slower.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/kernel_table.h"

namespace sluice::kernels {

inline bool HasPanels(const KvLayout& layout) {
  return layout.block_size % kAttentionPanelPositions == 0;
}

// Offset of element d of a position inside its panel.
inline int64_t KeyOffset(bool bf16, int /*head_dim*/, int position, int d) {
  return bf16 ? (d / 2 * kAttentionPanelPositions + position) * 2 + d % 2
              : d * kAttentionPanelPositions + position;
}
inline int64_t ValueOffset(bool bf16, int head_dim, int position, int d) {
  return bf16 ? (int64_t{position / 2} * head_dim + d) * 2 + position % 2
              : int64_t{position} * head_dim + d;
}

// Offset of a head's part of a block, in elements.
inline int64_t HeadOffset(const KvLayout& layout, int64_t block, int kv_head) {
  return block * layout.BlockElements() + int64_t{kv_head} * layout.block_size * layout.head_dim;
}

}  // namespace sluice::kernels
