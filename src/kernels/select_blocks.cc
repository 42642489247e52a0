#include "kernels/select_blocks.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

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

constexpr int64_t kMostBlockRows = 64;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

int64_t KeyPanelBytes(const KvLayout& layout) {
  return RoundUp(int64_t{kAttentionPanelPositions} * layout.side_dim * 4, 64);
}
int64_t PanelScoreBytes(int num_heads) {
  return RoundUp(int64_t{num_heads} * kAttentionPanelPositions * 4, 64);
}
int64_t BlocksOf(int64_t positions, int block) {
  return (positions + block - 1) / block;
}
// A thread's panel of keys, the scores of its positions, and the numbers of all blocks.
int64_t BlockThreadBytes(const KvLayout& layout, int num_heads, int64_t blocks) {
  return KeyPanelBytes(layout) + PanelScoreBytes(num_heads) + RoundUp(blocks * 4, 64);
}

template <typename T>
float ElementOf(T value) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else
    return ToFloat(value);
}

// A row for which blocks are chosen.
struct BlockRow {
  const AttentionSlice* slice = nullptr;
  int64_t row = 0;
  int32_t seen = 0;  // number of positions
};

// Reads the keys of positions [first, end), at most 16, into a panel; the last one fills the rest.
template <typename T>
void ReadKeyPanel(const KvCacheView& cache, const AttentionSlice& slice, int first, int end,
                  float* panel) {
  const KvLayout& layout = cache.layout;
  const int half = layout.side_dim / 2;
  for (int p = 0; p < kAttentionPanelPositions; ++p) {
    const int position = std::min(first + p, end - 1);
    const int64_t offset = SideOffset(layout, slice.block_table[position / layout.block_size]) +
                           int64_t{position % layout.block_size} * half;
    const T* const halves[2] = {static_cast<const T*>(cache.k) + offset,
                                static_cast<const T*>(cache.v) + offset};
    for (int d = 0; d < layout.side_dim; ++d)
      panel[d * kAttentionPanelPositions + p] = ElementOf(halves[d / half][d % half]);
  }
}

// Writes the scores of block `block` to scores[head * stride].
template <typename T>
void ScoreBlock(const KvCacheView& cache, const BlockRow& row, const BlockQueries& queries,
                int block, float* panel, float* panel_scores, float* scores, int64_t stride) {
  const int dim = cache.layout.side_dim;
  const float* const q = queries.q + row.row * queries.num_heads * dim;
  const int end = std::min((block + 1) * queries.block, int{row.seen});
  for (int head = 0; head < queries.num_heads; ++head) scores[head * stride] = kLowest;
  for (int first = block * queries.block; first < end; first += kAttentionPanelPositions) {
    ReadKeyPanel<T>(cache, *row.slice, first, end, panel);
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

// Writes the `top_k` blocks with the largest of `count` scores to `chosen`, ascending. `order`:
// scratch [count].
void ChooseTopBlocks(const float* scores, int32_t count, int top_k, int local, int32_t* order,
                     int32_t* chosen) {
  for (int32_t i = 0; i < count; ++i) order[i] = i;
  const auto is_local = [&](int32_t i) { return i >= count - local; };
  std::nth_element(order, order + top_k - 1, order + count, [&](int32_t a, int32_t b) {
    if (is_local(a) != is_local(b)) return is_local(a);
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
  });
  std::copy_n(order, top_k, chosen);
  std::sort(chosen, chosen + top_k);
}

}  // namespace

int64_t SelectBlocksScratchBytes(const KvLayout& layout, int num_heads, int block,
                                 int64_t max_context, int num_threads) {
  const int64_t blocks = BlocksOf(max_context, block);
  return num_threads * BlockThreadBytes(layout, num_heads, blocks) +
         kMostBlockRows * num_heads * blocks * 4 + 64;
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

  std::byte* const memory =
      scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  const int64_t thread_bytes = BlockThreadBytes(layout, queries.num_heads, most);
  const int64_t row_scores = queries.num_heads * most;
  CHECK(memory + pool.num_threads() * thread_bytes + kMostBlockRows * row_scores * 4 <=
            scratch.data() + scratch.size(),
        "the choice of blocks needs more scratch than its {} bytes", scratch.size());
  auto* const scores = reinterpret_cast<float*>(memory + pool.num_threads() * thread_bytes);

  std::array<BlockRow, kMostBlockRows> rows;
  int64_t count = 0;
  const auto run = [&] {
    ForEachUnit(pool, count * most, [&](int64_t unit, int thread) {
      const BlockRow& row = rows[static_cast<size_t>(unit / most)];
      const auto block = static_cast<int>(unit % most);
      if (block >= BlocksOf(row.seen, queries.block)) return;
      std::byte* const own = memory + thread * thread_bytes;
      auto* const panel = reinterpret_cast<float*>(own);
      auto* const panel_scores = reinterpret_cast<float*>(own + KeyPanelBytes(layout));
      float* const block_scores = scores + unit / most * row_scores + block;
      const auto score = [&]<typename T>(T /*type*/) {
        ScoreBlock<T>(cache, row, queries, block, panel, panel_scores, block_scores, most);
      };
      switch (layout.type) {
        case ElementType::kBF16: return score(BFloat16{});
        case ElementType::kF16: return score(Float16{});
        case ElementType::kF8E4M3: return score(Float8E4M3{});
        default: return score(float{});
      }
    });
    ForEachUnit(pool, count * queries.num_heads, [&](int64_t unit, int thread) {
      const int64_t index = unit / queries.num_heads, head = unit % queries.num_heads;
      const BlockRow& row = rows[static_cast<size_t>(index)];
      auto* const order =
          reinterpret_cast<int32_t*>(memory + thread * thread_bytes + KeyPanelBytes(layout) +
                                     PanelScoreBytes(queries.num_heads));
      ChooseTopBlocks(scores + index * row_scores + head * most,
                      static_cast<int32_t>(BlocksOf(row.seen, queries.block)), top_k, queries.local,
                      order, chosen + (row.row * queries.num_heads + head) * top_k);
    });
    count = 0;
  };
  for (const AttentionSlice& slice : slices) {
    for (int32_t i = 0; i < slice.num_tokens; ++i) {
      const int32_t seen = slice.context + i + 1;
      if (BlocksOf(seen, queries.block) <= top_k) continue;
      rows[static_cast<size_t>(count++)] = {&slice, slice.first_row + i, seen};
      if (count == kMostBlockRows) run();
    }
  }
  if (count > 0) run();
}

}  // namespace sluice::kernels
