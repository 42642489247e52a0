#include "kernels/select_positions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/integer.h"
#include "kernels/attention_layout.h"
#include "kernels/vector_kernel.h"
#include "kernels/work_queue.h"
#include "tensor/bfloat16.h"
#include "tensor/float16.h"
#include "tensor/float8.h"

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

// Maximum number of scores, and of rows, in memory at once. With long contexts, the scores limit
// the number of rows.
constexpr int64_t kScoresAtOnce = int64_t{4} << 20;
constexpr int64_t kMostRowsAtOnce = 64;

int64_t PanelBytes(const KvLayout& layout) {
  return RoundUp(int64_t{kAttentionPanelPositions} * layout.side_dim * 4, 64);
}
int64_t ScoreStride(int64_t max_context) {
  return RoundUp(max_context, kAttentionChunk);
}
int64_t RowsAtOnce(int64_t max_context) {
  return std::clamp(kScoresAtOnce / ScoreStride(max_context), int64_t{1}, kMostRowsAtOnce);
}

float Read(float value) {
  return value;
}
float Read(BFloat16 value) {
  return ToFloat(value);
}
float Read(Float16 value) {
  return ToFloat(value);
}
float Read(Float8E4M3 value) {
  return ToFloat(value);
}

// A row for which positions are chosen.
struct SelectedRow {
  const AttentionSlice* slice = nullptr;
  int64_t row = 0;
  int32_t seen = 0;  // number of positions
};

// Reads the keys of positions [first, end), at most 16, into a panel.
template <typename T>
void ReadPanel(const KvCacheView& cache, const AttentionSlice& slice, int first, int end,
               float* panel) {
  const KvLayout& layout = cache.layout;
  const int dim = layout.side_dim;
  for (int p = 0; p < kAttentionPanelPositions; ++p) {
    const int position = std::min(first + p, end - 1);
    const T* const key =
        static_cast<const T*>(cache.v) +
        (int64_t{slice.block_table[position / layout.block_size]} * layout.block_size +
         position % layout.block_size) *
            dim;
    for (int d = 0; d < dim; ++d) panel[d * kAttentionPanelPositions + p] = Read(key[d]);
  }
}

template <typename T>
void ScoreChunk(const KvCacheView& cache, const SelectedRow& row, const IndexQueries& queries,
                int first, float* panel, float* scores) {
  const int dim = cache.layout.side_dim;
  const float* const q = queries.q + row.row * queries.num_heads * dim;
  const float* const weights = queries.weights + row.row * queries.num_heads;
  const int end = std::min(first + kAttentionChunk, int{row.seen});
  for (int position = first; position < end; position += kAttentionPanelPositions) {
    ReadPanel<T>(cache, *row.slice, position, end, panel);
    kIndexPanelScores(q, weights, queries.num_heads, dim, panel, scores + position);
  }
}

// Writes the positions of the `top_k` largest of `count` scores to `chosen`, ascending. `order`:
// scratch [count].
void ChooseTop(const float* scores, int32_t count, int top_k, int32_t* order, int32_t* chosen) {
  for (int32_t i = 0; i < count; ++i) order[i] = i;
  const auto value = [&](int32_t i) {
    return std::isnan(scores[i]) ? -std::numeric_limits<float>::infinity() : scores[i];
  };
  std::nth_element(order, order + top_k - 1, order + count, [&](int32_t a, int32_t b) {
    const float x = value(a), y = value(b);
    return x > y || (x == y && a < b);
  });
  std::copy_n(order, top_k, chosen);
  std::sort(chosen, chosen + top_k);
}

}  // namespace

int64_t SelectScratchBytes(const KvLayout& layout, int64_t max_context, int num_threads) {
  const int64_t stride = ScoreStride(max_context);
  // A shorter context may need more memory for scores, because more of its rows fit at once.
  const int64_t scores = std::min(kMostRowsAtOnce * stride, std::max(kScoresAtOnce, stride));
  return num_threads * (PanelBytes(layout) + stride * 4) + scores * 4 + 64;
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
  std::byte* const memory =
      scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  const int64_t thread_bytes = PanelBytes(layout) + stride * 4;
  const int64_t most = RowsAtOnce(longest);
  CHECK(memory + pool.num_threads() * thread_bytes + most * stride * 4 <=
            scratch.data() + scratch.size(),
        "the choice of positions needs more scratch than its {} bytes", scratch.size());
  auto* const scores = reinterpret_cast<float*>(memory + pool.num_threads() * thread_bytes);

  std::array<SelectedRow, kMostRowsAtOnce> rows;
  int64_t count = 0;
  const auto run = [&] {
    int64_t chunks = 0;  // number of chunks of the row that has the most chunks
    for (int64_t i = 0; i < count; ++i)
      chunks =
          std::max<int64_t>(chunks, (rows[static_cast<size_t>(i)].seen - 1) / kAttentionChunk + 1);
    ForEachUnit(pool, count * chunks, [&](int64_t unit, int thread) {
      const int64_t index = unit / chunks;
      const SelectedRow& row = rows[static_cast<size_t>(index)];
      const auto first = static_cast<int>(unit % chunks) * kAttentionChunk;
      if (first >= row.seen) return;
      auto* const panel = reinterpret_cast<float*>(memory + thread * thread_bytes);
      float* const row_scores = scores + index * stride;
      switch (layout.type) {
        case ElementType::kBF16:
          return ScoreChunk<BFloat16>(cache, row, queries, first, panel, row_scores);
        case ElementType::kF16:
          return ScoreChunk<Float16>(cache, row, queries, first, panel, row_scores);
        case ElementType::kF8E4M3:
          return ScoreChunk<Float8E4M3>(cache, row, queries, first, panel, row_scores);
        default: return ScoreChunk<float>(cache, row, queries, first, panel, row_scores);
      }
    });
    ForEachUnit(pool, count, [&](int64_t index, int thread) {
      const SelectedRow& row = rows[static_cast<size_t>(index)];
      auto* const order =
          reinterpret_cast<int32_t*>(memory + thread * thread_bytes + PanelBytes(layout));
      ChooseTop(scores + index * stride, row.seen, top_k, order, chosen + row.row * top_k);
    });
    count = 0;
  };
  for (const AttentionSlice& slice : slices) {
    for (int32_t i = 0; i < slice.num_tokens; ++i) {
      const int32_t seen = (slice.context + i + 1) / queries.rate;
      if (seen <= top_k) continue;
      rows[static_cast<size_t>(count++)] = {&slice, slice.first_row + i, seen};
      if (count == most) run();
    }
  }
  if (count > 0) run();
}

}  // namespace sluice::kernels
