#include "kernels/select_positions.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/integer.h"
#include "kernels/attention_layout.h"
#include "kernels/index_panels.h"
#include "kernels/vector_kernel.h"
#include "kernels/work_queue.h"

namespace sluice::kernels {

namespace reference {

// Scores the positions of a panel: keys F32 [dim][16], scores [16].
void IndexPanelScores(const float* q, const float* weights, int num_heads, int dim,
                      const float* keys, float* scores) {
  for (int p = 0; p < kAttentionPanelPositions; ++p) {
    float sum = 0;
    for (int head = 0; head < num_heads; ++head) {
      float dot = 0;
      for (int d = 0; d < dim; ++d)
        dot += q[head * dim + d] * keys[d * kAttentionPanelPositions + p];
      sum += weights[head] * std::max(dot, 0.0f);
    }
    scores[p] = sum;
  }
}

}  // namespace reference

SLUICE_VECTOR_KERNEL(IndexPanelScores);

namespace {

// Maximum number of scores in memory at once. With long contexts, they limit the number of rows.
constexpr int64_t kScoresAtOnce = int64_t{4} << 20;

int64_t ScoreStride(int64_t max_context) {
  return RoundUp(max_context, kAttentionChunk);
}
int64_t RowsAtOnce(int64_t max_context) {
  return std::clamp(kScoresAtOnce / ScoreStride(max_context), int64_t{1}, kMostIndexRows);
}

template <typename T>
void ScoreChunk(const KvCacheView& cache, const IndexRow& row, const IndexQueries& queries,
                int first, float* panel, float* scores) {
  const KvLayout& layout = cache.layout;
  const int dim = layout.side_dim;
  const float* const q = queries.q + row.row * queries.num_heads * dim;
  const float* const weights = queries.weights + row.row * queries.num_heads;
  const int end = std::min(first + kAttentionChunk, int{row.seen});
  for (int position = first; position < end; position += kAttentionPanelPositions) {
    ReadIndexPanel(layout, *row.slice, position, end, panel, [&](int64_t block, int in_block) {
      const T* const key =
          static_cast<const T*>(cache.v) + (block * layout.block_size + in_block) * dim;
      return [key](int d) { return key[d]; };
    });
    kIndexPanelScores(q, weights, queries.num_heads, dim, panel, scores + position);
  }
}

}  // namespace

int64_t SelectScratchBytes(const KvLayout& layout, int64_t max_context, int num_threads) {
  const int64_t stride = ScoreStride(max_context);
  // A shorter context may need more memory for scores, because more of its rows fit at once.
  const int64_t scores = std::min(kMostIndexRows * stride, std::max(kScoresAtOnce, stride));
  return num_threads * (IndexPanelBytes(layout) + stride * 4) + scores * 4 + 64;
}

void SelectPositions(ThreadPool& pool, const KvCacheView& cache,
                     std::span<const AttentionSlice> slices, const IndexQueries& queries, int top_k,
                     int32_t* chosen, std::span<std::byte> scratch) {
  const KvLayout& layout = cache.layout;
  CheckKvType(layout);
  CHECK(layout.is_latent() && layout.side_dim > 0, "an indexer stores keys next to a latent cache");
  CHECK_EQ(layout.num_kv_heads, 1);
  int32_t longest = 0;
  for (const AttentionSlice& slice : slices)
    longest = std::max(longest, (slice.context + slice.num_tokens) / queries.rate);
  if (longest <= top_k) return;

  const int64_t stride = ScoreStride(longest);
  std::byte* const memory = AlignedScratch(scratch);
  const int64_t thread_bytes = IndexPanelBytes(layout) + stride * 4;
  const int64_t most = RowsAtOnce(longest);
  CHECK(memory + pool.num_threads() * thread_bytes + most * stride * 4 <=
            scratch.data() + scratch.size(),
        "the choice of positions needs more scratch than its {} bytes", scratch.size());
  auto* const scores = reinterpret_cast<float*>(memory + pool.num_threads() * thread_bytes);

  const auto seen = [&](int32_t tokens) {
    const int32_t positions = tokens / queries.rate;
    return positions > top_k ? positions : 0;
  };
  ForIndexRows(slices, most, seen, [&](std::span<const IndexRow> rows) {
    const auto count = static_cast<int64_t>(rows.size());
    int64_t chunks = 0;  // number of chunks of the row that has the most chunks
    for (const IndexRow& row : rows)
      chunks = std::max<int64_t>(chunks, (row.seen - 1) / kAttentionChunk + 1);
    ForEachUnit(pool, count * chunks, [&](int64_t unit, int thread) {
      const int64_t index = unit / chunks;
      const IndexRow& row = rows[static_cast<size_t>(index)];
      const auto first = static_cast<int>(unit % chunks) * kAttentionChunk;
      if (first >= row.seen) return;
      auto* const panel = reinterpret_cast<float*>(memory + thread * thread_bytes);
      ForElementType(layout, [&]<typename T>(T /*type*/) {
        ScoreChunk<T>(cache, row, queries, first, panel, scores + index * stride);
      });
    });
    ForEachUnit(pool, count, [&](int64_t index, int thread) {
      const IndexRow& row = rows[static_cast<size_t>(index)];
      const float* const row_scores = scores + index * stride;
      const auto value = [&](int32_t i) {
        return std::isnan(row_scores[i]) ? -std::numeric_limits<float>::infinity() : row_scores[i];
      };
      auto* const order =
          reinterpret_cast<int32_t*>(memory + thread * thread_bytes + IndexPanelBytes(layout));
      ChooseBest(row.seen, top_k, order, chosen + row.row * top_k, [&](int32_t a, int32_t b) {
        const float x = value(a), y = value(b);
        return x > y || (x == y && a < b);
      });
    });
  });
}

}  // namespace sluice::kernels
