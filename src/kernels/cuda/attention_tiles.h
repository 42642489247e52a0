// How attention is cut into blocks of threads: what the kernels and the plan on the host agree on.
// Free of includes, as device_kernels.h.
//
// The heads of a KV head's group are cut into head tiles of at most 16 heads of nearly equal
// number. A tile of query rows holds the rows of some tokens for one head tile, token by token: row
// i is token i / heads, head i % heads.
#pragma once

namespace sluice::device {

// Rows of a tile: a wide one takes all its positions alone, a narrow one may share them with others
// (AttentionItem::partial).
constexpr int kWideTileRows = 64;
constexpr int kNarrowTileRows = 16;

// A row's positions are taken in ranges of so many, from position 0 on, and the results of the
// ranges combined in order, by whichever block of threads: so a row's bits depend on its own
// position and cache alone.
constexpr int kAttentionSplit = 512;

// A row of partial results: head_dim sums, then the largest score and the sum of weights, and two
// numbers of padding.
constexpr int kPartialExtraNumbers = 4;

struct HeadTiles {
  int per_group;  // tiles of a KV head
  int heads;      // of a tile; the last may have fewer
};

constexpr HeadTiles HeadTilesOf(int num_heads, int num_kv_heads) {
  const int group = num_heads / num_kv_heads;
  const int per_group = (group + kNarrowTileRows - 1) / kNarrowTileRows;
  return {per_group, (group + per_group - 1) / per_group};
}

}  // namespace sluice::device
