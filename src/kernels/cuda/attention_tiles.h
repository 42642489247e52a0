// How attention is divided among thread blocks, for the kernels and for the plan on the host.
// Like device_kernels.h, this header includes nothing.
//
// The heads of a KV head's group are divided into head tiles of at most 16 heads, of nearly equal
// size. A tile of query rows consists of the rows of some tokens for one head tile, token by token:
// row i is token i / heads, head i % heads.
#pragma once

namespace sluice::device {

// Number of rows per tile. One item covers all positions of a wide tile. Several items may divide
// the positions of a narrow tile (AttentionItem::partial).
constexpr int kWideTileRows = 64;
constexpr int kNarrowTileRows = 16;

// Positions per range. A row's positions are processed in ranges from position 0 on, and the
// results of the ranges are combined in ascending order, by any thread block. So a row's bits
// depend only on its own position and cache.
constexpr int kAttentionSplit = 512;

// Number of additional elements in a row of partial results. After head_dim sums come the largest
// score, the sum of weights, and two elements of padding.
constexpr int kPartialExtraNumbers = 4;

struct HeadTiles {
  int per_group;  // tiles per KV head
  int heads;      // number of heads per tile; the last tile may have fewer
};

constexpr HeadTiles HeadTilesOf(int num_heads, int num_kv_heads) {
  const int group = num_heads / num_kv_heads;
  const int per_group = (group + kNarrowTileRows - 1) / kNarrowTileRows;
  return {per_group, (group + per_group - 1) / per_group};
}

}  // namespace sluice::device
