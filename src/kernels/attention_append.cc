// Writing of new keys and values to the cache.
#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/attention_layout.h"
#include "tensor/bfloat16.h"

namespace sluice::kernels {
namespace {

void Store(BFloat16& slot, float value) {
  slot = ToBFloat16(value);
}
void Store(float& slot, float value) {
  slot = value;
}

// One token's key and value of one head. `k_head` and `v_head`: the head's part of the block;
// `row`: the slot in it.
template <typename T>
void AppendToken(const KvLayout& layout, T* k_head, T* v_head, int row, const float* k,
                 const float* v) {
  constexpr bool kBf16 = sizeof(T) == 2;
  const int head_dim = layout.head_dim;
  if (!HasPanels(layout)) {
    for (int d = 0; d < head_dim; ++d) Store(k_head[row * head_dim + d], k[d]);
    for (int d = 0; d < head_dim; ++d) Store(v_head[row * head_dim + d], v[d]);
    return;
  }
  const int position = row % kAttentionPanelPositions;
  const int64_t panel = int64_t{row - position} * head_dim;
  for (int d = 0; d < head_dim; ++d)
    Store(k_head[panel + KeyOffset(kBf16, head_dim, position, d)], k[d]);
  for (int d = 0; d < head_dim; ++d)
    Store(v_head[panel + ValueOffset(kBf16, head_dim, position, d)], v[d]);
}

template <typename T>
void AppendSlice(const KvCacheView& cache, const AttentionSlice& slice, int32_t begin, int32_t end,
                 const float* k, const float* v, int64_t stride) {
  const KvLayout& layout = cache.layout;
  for (int32_t i = begin; i < end; ++i) {
    const int32_t position = slice.context + i;
    const int64_t block = slice.block_table[position / layout.block_size];
    const int64_t row = (slice.first_row + i) * stride;
    for (int head = 0; head < layout.num_kv_heads; ++head) {
      const int64_t offset = HeadOffset(layout, block, head);
      AppendToken(layout, static_cast<T*>(cache.k) + offset, static_cast<T*>(cache.v) + offset,
                  position % layout.block_size, k + row + int64_t{head} * layout.head_dim,
                  v + row + int64_t{head} * layout.head_dim);
    }
  }
}

}  // namespace

void AppendKv(ThreadPool& pool, const KvCacheView& cache, std::span<const AttentionSlice> slices,
              const float* k, const float* v, int64_t stride) {
  const bool bf16 = cache.layout.type == ElementType::kBF16;
  CHECK(bf16 || cache.layout.type == ElementType::kF32, "a KV cache is BF16 or F32, not {}",
        ElementTypeName(cache.layout.type));
  int64_t total = 0;
  for (const AttentionSlice& slice : slices) total += slice.num_tokens;
  // Tokens are numbered through all slices, so that one long slice and many short ones both spread
  // evenly.
  constexpr int64_t kGrain = 4;
  pool.ParallelFor(total, kGrain, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (const AttentionSlice& slice : slices) {
      const auto from = static_cast<int32_t>(std::max<int64_t>(begin - first, 0));
      const auto to = static_cast<int32_t>(std::min<int64_t>(end - first, slice.num_tokens));
      if (from < to) {
        if (bf16)
          AppendSlice<BFloat16>(cache, slice, from, to, k, v, stride);
        else
          AppendSlice<float>(cache, slice, from, to, k, v, stride);
      }
      first += slice.num_tokens;
      if (first >= end) break;
    }
  });
}

}  // namespace sluice::kernels
