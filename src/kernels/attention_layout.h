// Memory layout of keys and values inside a block of the cache; private to the attention operator.
//
// A head's keys (and values) in one block take block_size * head_dim elements. If block_size is a
// multiple of 16 they are stored in panels of 16 positions, the layout that the kernels read
// (kernel_table.h, AttentionChunkArgs). In a panel of keys the positions are contiguous, like the
// output rows of a weight panel. In a panel of values the elements of a head are contiguous, and in
// BF16 neighbouring positions are interleaved in pairs. F8_E4M3 codes are laid out like BF16,
// except that each whole group of 64 codes has the order of CodePlace; F16 is laid out like F32.
// Both are converted when read. With other block sizes, blocks contain plain rows [block_size,
// head_dim], which are copied into panels when read; this is slower. Latent caches also contain
// plain rows, because each row is copied to both a panel of keys and a panel of values, and chosen
// positions are read as single rows.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/kernel_table.h"

namespace sluice::kernels {

inline void CheckKvType(const KvLayout& layout) {
  CHECK(layout.type == ElementType::kBF16 || layout.type == ElementType::kF32 ||
            layout.type == ElementType::kF8E4M3 || layout.type == ElementType::kF16,
        "a KV cache is BF16, F16, F32 or F8_E4M3, not {}", ElementTypeName(layout.type));
}

inline bool HasPanels(const KvLayout& layout) {
  return layout.block_size % kAttentionPanelPositions == 0 && !layout.is_latent();
}

// Returns the offset of element d of a position inside its panel. `pairs`: whether the panel has
// the BF16 layout.
inline int64_t KeyOffset(bool pairs, int /*head_dim*/, int position, int d) {
  return pairs ? (d / 2 * kAttentionPanelPositions + position) * 2 + d % 2
               : d * kAttentionPanelPositions + position;
}
inline int64_t ValueOffset(bool pairs, int head_dim, int position, int d) {
  return pairs ? (int64_t{position / 2} * head_dim + d) * 2 + position % 2
               : int64_t{position} * head_dim + d;
}

// Returns the position of an F8_E4M3 code in its group of 64. Runs of 8 codes of the group's first
// half alternate with runs of its second half. So unpacking bytes within each 16-byte lane of a
// vector gives two vectors of consecutive elements. Codes after the last whole group are in BF16
// order.
constexpr int kCodeGroup = 64;
constexpr int CodePlace(int code) {
  const int eight = code / 8;
  return (eight % 4 * 2 + eight / 4) * 8 + code % 8;
}
inline int64_t KeyCodeOffset(int head_dim, int position, int d) {
  const int64_t offset = KeyOffset(true, head_dim, position, d);
  const int64_t group = offset / kCodeGroup * kCodeGroup;
  if (group + kCodeGroup > int64_t{kAttentionPanelPositions} * head_dim) return offset;
  return group + CodePlace(static_cast<int>(offset - group));
}
// Returns the offset of a code within a panel of values. Groups of codes do not cross pairs of
// positions: each pair starts a new group.
inline int64_t ValueCodeOffset(int head_dim, int position, int d) {
  const int64_t offset = ValueOffset(true, head_dim, position, d);
  constexpr int kElements = kCodeGroup / 2;
  const int first = d / kElements * kElements;
  if (first + kElements > head_dim) return offset;
  const int64_t group = ValueOffset(true, head_dim, position / 2 * 2, first);
  return group + CodePlace(static_cast<int>(offset - group));
}

// Returns the offset of an element in a cache of this type.
inline int64_t KeyOffset(ElementType type, int head_dim, int position, int d) {
  return type == ElementType::kF8E4M3
             ? KeyCodeOffset(head_dim, position, d)
             : KeyOffset(type == ElementType::kBF16, head_dim, position, d);
}
inline int64_t ValueOffset(ElementType type, int head_dim, int position, int d) {
  return type == ElementType::kF8E4M3
             ? ValueCodeOffset(head_dim, position, d)
             : ValueOffset(type == ElementType::kBF16, head_dim, position, d);
}

// Returns the offset, in elements, of a head's elements in the cache.
inline int64_t HeadOffset(const KvLayout& layout, int64_t block, int kv_head) {
  return block * layout.BlockStride() + int64_t{kv_head} * layout.block_size * layout.head_dim;
}

// Returns the offset, in elements, of the side elements of a block of a cache that is not latent,
// in K and in V.
inline int64_t SideOffset(const KvLayout& layout, int64_t block) {
  return HeadOffset(layout, block, layout.num_kv_heads);
}

}  // namespace sluice::kernels
