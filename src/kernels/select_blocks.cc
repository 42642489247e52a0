#include "kernels/select_blocks.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/integer.h"
#include "kernels/attention_layout.h"
#include "kernels/index_panels.h"
#include "kernels/vector_kernel.h"
#include "kernels/work_queue.h"

namespace sluice::kernels {

namespace reference {

// Computes q . key for each head and each position of a panel: keys F32 [dim][16], scores
// [num_heads, 16].
void HeadPanelScores(const float* q, int num_heads, int dim, const float* keys, float* scores) {
  for (int head = 0; head < num_heads; ++head) {
    for (int p = 0; p < kAttentionPanelPositions; ++p) {
      float dot = 0;
      for (int d = 0; d < dim; ++d)
        dot += q[head * dim + d] * keys[d * kAttentionPanelPositions + p];
      scores[head * kAttentionPanelPositions + p] = dot;
    }
  }
}

}  // namespace reference

SLUICE_VECTOR_KERNEL(HeadPanelScores);

namespace {

static_assert(kBlockUnit == kAttentionPanelPositions);

constexpr float kLowest = -std::numeric_limits<float>::infinity();

int64_t PanelScoreBytes(int num_heads) {
  return RoundUp(int64_t{num_heads} * kAttentionPanelPositions * 4, 64);
}
int64_t BlocksOf(int64_t positions, int block) {
  return (positions + block - 1) / block;
}
// A thread's panel of keys, the scores of its positions, and the numbers of all blocks.
int64_t BlockThreadBytes(const KvLayout& layout, int num_heads, int64_t blocks) {
  return IndexPanelBytes(layout) + PanelScoreBytes(num_heads) + RoundUp(blocks * 4, 64);
}

// Writes the scores of block `block` to scores[head * stride].
template <typename T>
void ScoreBlock(const KvCacheView& cache, const IndexRow& row, const BlockQueries& queries,
                int block, float* panel, float* panel_scores, float* scores, int64_t stride) {
  const KvLayout& layout = cache.layout;
  const int dim = layout.side_dim, half = dim / 2;
  const float* const q = queries.q + row.row * queries.num_heads * dim;
  const int end = std::min((block + 1) * queries.block, int{row.seen});
  for (int head = 0; head < queries.num_heads; ++head) scores[head * stride] = kLowest;
  for (int first = block * queries.block; first < end; first += kAttentionPanelPositions) {
    ReadIndexPanel(layout, *row.slice, first, end, panel, [&](int64_t number, int in_block) {
      const int64_t offset = SideOffset(layout, number) + int64_t{in_block} * half;
      const T* const low = static_cast<const T*>(cache.k) + offset;
      const T* const high = static_cast<const T*>(cache.v) + offset;
      return [low, high, half](int d) { return d < half ? low[d] : high[d - half]; };
    });
    kHeadPanelScores(q, queries.num_heads, dim, panel, panel_scores);
    for (int head = 0; head < queries.num_heads; ++head) {
      float& largest = scores[head * stride];
      for (int p = 0; p < kAttentionPanelPositions; ++p) {
        const float score = panel_scores[head * kAttentionPanelPositions + p];
        if (score > largest) largest = score;  // false for NaN
      }
    }
  }
}

}  // namespace

int64_t SelectBlocksScratchBytes(const KvLayout& layout, int num_heads, int block,
                                 int64_t max_context, int num_threads) {
  const int64_t blocks = BlocksOf(max_context, block);
  return num_threads * BlockThreadBytes(layout, num_heads, blocks) +
         kMostIndexRows * num_heads * blocks * 4 + 64;
}

void SelectBlocks(ThreadPool& pool, const KvCacheView& cache,
                  std::span<const AttentionSlice> slices, const BlockQueries& queries, int top_k,
                  int32_t* chosen, std::span<std::byte> scratch) {
  const KvLayout& layout = cache.layout;
  CheckKvType(layout);
  CHECK(!layout.is_latent() && layout.side_dim > 0 && layout.side_dim % 2 == 0,
        "an indexer of blocks stores keys of an even number of elements next to keys and values");
  CHECK(queries.block > 0 && queries.block % kBlockUnit == 0, "blocks of {} positions",
        queries.block);
  CHECK(queries.local >= 1 && queries.local <= top_k, "{} local blocks of {}", queries.local,
        top_k);
  int32_t longest = 0;
  for (const AttentionSlice& slice : slices)
    longest = std::max(longest, slice.context + slice.num_tokens);
  const int64_t most = BlocksOf(longest, queries.block);
  if (most <= top_k) return;

  std::byte* const memory = AlignedScratch(scratch);
  const int64_t thread_bytes = BlockThreadBytes(layout, queries.num_heads, most);
  const int64_t row_scores = queries.num_heads * most;
  CHECK(memory + pool.num_threads() * thread_bytes + kMostIndexRows * row_scores * 4 <=
            scratch.data() + scratch.size(),
        "the choice of blocks needs more scratch than its {} bytes", scratch.size());
  auto* const scores = reinterpret_cast<float*>(memory + pool.num_threads() * thread_bytes);

  const auto seen = [&](int32_t tokens) {
    return BlocksOf(tokens, queries.block) > top_k ? tokens : 0;
  };
  ForIndexRows(slices, kMostIndexRows, seen, [&](std::span<const IndexRow> rows) {
    const auto count = static_cast<int64_t>(rows.size());
    ForEachUnit(pool, count * most, [&](int64_t unit, int thread) {
      const IndexRow& row = rows[static_cast<size_t>(unit / most)];
      const auto block = static_cast<int>(unit % most);
      if (block >= BlocksOf(row.seen, queries.block)) return;
      std::byte* const own = memory + thread * thread_bytes;
      auto* const panel = reinterpret_cast<float*>(own);
      auto* const panel_scores = reinterpret_cast<float*>(own + IndexPanelBytes(layout));
      float* const block_scores = scores + unit / most * row_scores + block;
      ForElementType(layout, [&]<typename T>(T /*type*/) {
        ScoreBlock<T>(cache, row, queries, block, panel, panel_scores, block_scores, most);
      });
    });
    ForEachUnit(pool, count * queries.num_heads, [&](int64_t unit, int thread) {
      const int64_t index = unit / queries.num_heads, head = unit % queries.num_heads;
      const IndexRow& row = rows[static_cast<size_t>(index)];
      const float* const head_scores = scores + index * row_scores + head * most;
      auto* const order =
          reinterpret_cast<int32_t*>(memory + thread * thread_bytes + IndexPanelBytes(layout) +
                                     PanelScoreBytes(queries.num_heads));
      const auto blocks = static_cast<int32_t>(BlocksOf(row.seen, queries.block));
      const auto is_local = [&](int32_t i) { return i >= blocks - queries.local; };
      ChooseBest(blocks, top_k, order, chosen + (row.row * queries.num_heads + head) * top_k,
                 [&](int32_t a, int32_t b) {
                   if (is_local(a) != is_local(b)) return is_local(a);
                   return head_scores[a] > head_scores[b] ||
                          (head_scores[a] == head_scores[b] && a < b);
                 });
    });
  });
}

}  // namespace sluice::kernels
