// One chunk of attention of one token for all KV heads together. Same arithmetic as
// attention_inl.h, with bit-identical results.
//
// A block contains the panels of one head after another. Prefetching head by head would read pieces
// of 1 to 4 KiB with gaps between them, which halves the memory bandwidth. Instead, groups of whole
// blocks are prefetched to L2 contiguously, each group during the products of the previous group.
#pragma once

#include <algorithm>

#include "kernels/cpu/avx512_bf16/attention_inl.h"

namespace sluice::kernels::avx512_bf16 {
namespace {

constexpr int kGroupPanels = kAttentionHeadsPanels;

// The panels of one head in a group of blocks, and the panels to prefetch during their products.
struct GroupPart {
  int begin, end;  // panels [begin, end) of the chunk
  const uint8_t* panels[kGroupPanels];
  const uint8_t* ahead[kGroupPanels];
};

// Walks over the visible blocks of a chunk, all keys and then all values, in groups of up to
// kGroupPanels panels per head.
class BlockWalk {
 public:
  BlockWalk(const AttentionHeadsArgs& args, int64_t panel_bytes)
      : args_(args),
        panel_bytes_(panel_bytes),
        block_panels_(args.heads * args.block_panels),
        group_blocks_(kGroupPanels / args.block_panels),
        first_block_(args.start / (kPositions * args.block_panels)) {
    const int end_block = (args.limit - 1) / (kPositions * args.block_panels) + 1;
    blocks_ = end_block - first_block_;
    int count = 0;
    const auto add = [&](const void* block) {
      order_[count++] = static_cast<const uint8_t*>(block);
    };
    for (int i = first_block_; i < end_block; ++i) add(args.k_blocks[i]);
    for (int i = first_block_; i < end_block; ++i) add(args.v_blocks[i]);
    for (int i = 0; i < group_blocks_; ++i) add(args.next_k_blocks[i]);
  }

  // Calls body(head, part) for each head of each group, first of keys, then of values.
  template <typename Body>
  void ForEachKeys(const Body& body) const {
    ForEachPart(order_, body);
  }
  template <typename Body>
  void ForEachValues(const Body& body) const {
    ForEachPart(order_ + blocks_, body);
  }

 private:
  template <typename Body>
  void ForEachPart(const uint8_t* const* order, const Body& body) const {
    const int first_panel = args_.start / kPositions;
    const int end_panel = (args_.limit - 1) / kPositions + 1;
    for (int i = 0; i < blocks_; i += group_blocks_) {
      const int group_end = std::min(i + group_blocks_, blocks_);
      const int panel = (first_block_ + i) * args_.block_panels;
      GroupPart part;
      part.begin = std::max(panel, first_panel);
      part.end = std::min((first_block_ + group_end) * args_.block_panels, end_panel);
      const uint8_t* const* ahead = order + group_end;
      int ahead_panel = 0;
      for (int head = 0; head < args_.heads; ++head) {
        for (int p = part.begin; p < part.end; ++p) {
          const int block = (p - panel) / args_.block_panels;
          const int in_block = head * args_.block_panels + p - panel - block * args_.block_panels;
          part.panels[p - part.begin] = order[i + block] + in_block * panel_bytes_;
          part.ahead[p - part.begin] = *ahead + ahead_panel * panel_bytes_;
          if (++ahead_panel == block_panels_) {
            ahead_panel = 0;
            ++ahead;
          }
        }
        body(head, part);
      }
    }
  }

  const AttentionHeadsArgs& args_;
  int64_t panel_bytes_;
  int block_panels_;  // number of panels of a block, over all heads
  int group_blocks_;
  int first_block_, blocks_;
  // Blocks of keys, of values, and of the next keys.
  const uint8_t* order_[2 * kAttentionPanels + kGroupPanels];
};

// Computes scores of result rows [row, row + kRows). Not inlined: with the variables of the loops
// around it, GCC 12 would spill vectors to the stack.
template <typename Kv, bool kFetch, int kRows>
__attribute__((noinline)) void ScoreGroup(const AttentionHeadsArgs& args, int row,
                                          const GroupPart& part) {
  const int head_dim = args.head_dim;
  alignas(64) uint16_t q[kRows * kMaxKeyDim];
  RoundQueries(args.q + int64_t{row} * head_dim, kRows, head_dim, q);
  float* scores = args.scores + row * kAttentionChunk + part.begin * kPositions;
  const int panels = part.end - part.begin;
  if (panels == kGroupPanels) {
    ScorePanels<Kv, kFetch, kRows, kGroupPanels>(q, head_dim, part.panels, part.ahead, scores);
    return;
  }
  for (int i = 0; i < panels; ++i) {
    ScorePanels<Kv, kFetch, kRows, 1>(q, head_dim, part.panels + i, part.ahead + i,
                                      scores + i * kPositions);
  }
}

// Adds a group's values, weighted by the scores, to result rows [row, row + kRows).
template <typename Kv, bool kFetch, int kRows>
__attribute__((noinline)) void AddGroup(const AttentionHeadsArgs& args, int row,
                                        const GroupPart& part) {
  const int begin = std::max(part.begin * kPositions, args.start);
  const int end = std::min(part.end * kPositions, args.limit);
  const ValueRows rows{args.scores + row * kAttentionChunk, args.out + int64_t{row} * args.head_dim,
                       args.head_dim};
  const auto values = [&](int panel) {
    return std::pair(part.panels[panel - part.begin], part.ahead[panel - part.begin]);
  };
  AddAllValues<Kv, kFetch, kRows>(rows, values, begin, end, begin == args.start);
}

template <typename Kv>
void AttendHeads(const AttentionHeadsArgs& args) {
  constexpr int kMostRows = Kv::kTileRows;
  const BlockWalk walk(args, int64_t{kPositions} * args.head_dim * Kv::kBytes);
  const int tiles = (args.rows + kMostRows - 1) / kMostRows;

  // Calls tile.operator()<rows, fetches>(first result row) for the tiles of a head.
  const auto for_each_tile = [&](int head, const auto& tile) __attribute__((always_inline)) {
    for (int i = 0; i < tiles; ++i) {
      const int begin = args.rows * i / tiles;
      const int count = args.rows * (i + 1) / tiles - begin;
      RunTile<kMostRows, 1>(0, count, 0, [&]<int kRows, int>(int64_t, int64_t) {
        if (i == 0)
          tile.template operator()<kRows, true>(head * args.rows + begin);
        else
          tile.template operator()<kRows, false>(head * args.rows + begin);
      });
    }
  };

  walk.ForEachKeys([&](int head, const GroupPart& part) {
    for_each_tile(head, [&]<int kRows, bool kFetch>(int row) {
      ScoreGroup<Kv, kFetch, kRows>(args, row, part);
    });
  });

  for (int row = 0; row < args.heads * args.rows; ++row) {
    Softmax(args.scores + row * kAttentionChunk, args.start, args.limit, args.soft_cap,
            args.largest[row], args.sum[row]);
  }

  walk.ForEachValues([&](int head, const GroupPart& part) {
    for_each_tile(head, [&]<int kRows, bool kFetch>(int row) {
      AddGroup<Kv, kFetch, kRows>(args, row, part);
    });
  });
}

}  // namespace
}  // namespace sluice::kernels::avx512_bf16
