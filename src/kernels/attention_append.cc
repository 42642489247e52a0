// Writes new keys and values to the cache.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/attention_layout.h"
#include "tensor/bfloat16.h"
#include "tensor/float16.h"
#include "tensor/float8.h"

namespace sluice::kernels {
namespace {

// Converts `count` elements of one head to the cache's type.
void Round(const float* x, float /*scale*/, int count, BFloat16* out) {
  for (int i = 0; i < count; ++i) out[i] = ToBFloat16(x[i]);
}
void Round(const float* x, float /*scale*/, int count, Float16* out) {
  for (int i = 0; i < count; ++i) out[i] = ToFloat16(x[i]);
}
void Round(const float* x, float /*scale*/, int count, float* out) {
  std::copy_n(x, count, out);
}
void Round(const float* x, float scale, int count, Float8E4M3* out) {
  for (int i = 0; i < count; ++i) out[i] = ToFloat8E4M3(x[i] / scale);
}

// Stores one token's key and value for one head. `k_head` and `v_head`: the head's part of the
// block; `row`: the token's position in the block. v: null for a latent cache.
template <typename T>
void AppendToken(const KvCacheView& cache, T* k_head, T* v_head, int row, const float* k,
                 const float* v) {
  const KvLayout& layout = cache.layout;
  const int head_dim = layout.head_dim;
  if (!HasPanels(layout)) {
    Round(k, cache.k_scale, head_dim, k_head + row * head_dim);
    if (v != nullptr) Round(v, cache.v_scale, head_dim, v_head + row * head_dim);
    return;
  }
  std::array<T, kMaxKeyDim> rounded;
  const int position = row % kAttentionPanelPositions;
  const int64_t panel = int64_t{row - position} * head_dim;
  Round(k, cache.k_scale, head_dim, rounded.data());
  for (int d = 0; d < head_dim; ++d)
    k_head[panel + KeyOffset(layout.type, head_dim, position, d)] = rounded[static_cast<size_t>(d)];
  Round(v, cache.v_scale, head_dim, rounded.data());
  for (int d = 0; d < head_dim; ++d)
    v_head[panel + ValueOffset(layout.type, head_dim, position, d)] =
        rounded[static_cast<size_t>(d)];
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
      const int64_t from = row + int64_t{head} * layout.head_dim;
      AppendToken(cache, static_cast<T*>(cache.k) + offset,
                  layout.is_latent() ? nullptr : static_cast<T*>(cache.v) + offset,
                  position % layout.block_size, k + from, v == nullptr ? nullptr : v + from);
    }
  }
}

}  // namespace

void AppendKv(ThreadPool& pool, const KvCacheView& cache, std::span<const AttentionSlice> slices,
              const float* k, const float* v, int64_t stride) {
  const ElementType type = cache.layout.type;
  CheckKvType(cache.layout);
  CHECK_LE(cache.layout.head_dim, kMaxKeyDim);
  CHECK_EQ(v == nullptr, cache.layout.is_latent());
  int64_t total = 0;
  for (const AttentionSlice& slice : slices) total += slice.num_tokens;
  // Tokens are numbered through all slices, so that work is spread evenly over threads both for one
  // long slice and for many short ones.
  constexpr int64_t kGrain = 4;
  pool.ParallelFor(total, kGrain, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (const AttentionSlice& slice : slices) {
      const auto from = static_cast<int32_t>(std::max<int64_t>(begin - first, 0));
      const auto to = static_cast<int32_t>(std::min<int64_t>(end - first, slice.num_tokens));
      if (from < to) {
        if (type == ElementType::kBF16)
          AppendSlice<BFloat16>(cache, slice, from, to, k, v, stride);
        else if (type == ElementType::kF8E4M3)
          AppendSlice<Float8E4M3>(cache, slice, from, to, k, v, stride);
        else if (type == ElementType::kF16)
          AppendSlice<Float16>(cache, slice, from, to, k, v, stride);
        else
          AppendSlice<float>(cache, slice, from, to, k, v, stride);
      }
      first += slice.num_tokens;
      if (first >= end) break;
    }
  });
}

void AppendSide(ThreadPool& pool, const KvCacheView& cache, std::span<const AttentionSlice> slices,
                const float* x, int64_t stride) {
  // The side elements are stored as the keys of a latent cache of their width.
  KvCacheView side = cache;
  if (cache.layout.is_latent()) {
    side.layout.head_dim = side.layout.latent_dim = cache.layout.side_dim;
    side.layout.block_stride = 0;
    side.k = cache.v;
    return AppendKv(pool, side, slices, x, nullptr, stride);
  }
  const int half = cache.layout.side_dim / 2;
  side.layout.num_kv_heads = 1;
  side.layout.head_dim = side.layout.latent_dim = half;
  side.layout.block_stride = cache.layout.BlockStride();
  const int64_t bytes = SideOffset(cache.layout, 0) * BitsPerElement(cache.layout.type) / 8;
  for (void* const blocks : {cache.k, cache.v}) {
    side.k = static_cast<std::byte*>(blocks) + bytes;
    AppendKv(pool, side, slices, x, nullptr, stride);
    x += half;
  }
}

}  // namespace sluice::kernels
