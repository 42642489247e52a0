// Paged attention: causal grouped-query attention over a KV cache in blocks, for prefill and decode
// in the same call.
#pragma once

#include <cstdint>
#include <span>

#include "base/attention_span.h"
#include "base/thread_pool.h"
#include "tensor/buffer.h"
#include "tensor/element_type.h"

namespace sluice::kernels {

// The maximum head_dim of a cache, and of a latent cache.
inline constexpr int kMaxHeadDim = 512;
inline constexpr int kMaxKeyDim = 576;
// Chosen blocks of positions (ChosenPositions::block) are multiples of this number of positions.
inline constexpr int kBlockUnit = 16;

// Shape of one layer's KV cache. K and V are separate arrays, each [num_blocks, num_kv_heads,
// block_size, head_dim] of `type` (BF16, F16, F32 or F8_E4M3), with `block_stride` elements from a
// block to the next. The slot of token t of a sequence is block_table[t / block_size], row
// t % block_size.
struct KvLayout {
  int num_kv_heads = 0;
  int head_dim = 0;
  int block_size = 16;
  ElementType type = ElementType::kBF16;
  int64_t block_stride = 0;  // 0: blocks are contiguous
  // If not 0, this is a latent cache: the value of a position is the first `latent_dim` elements of
  // its key, stored once, and there are no separate values. The blocks of V are contiguous and
  // contain `side_dim` other elements per position (0: none), which AppendSide writes and Attention
  // does not read.
  int latent_dim = 0;
  // In other caches with `side_dim`, which is even, a block of K has the first half of the side
  // elements of each of its positions after all heads, [block_size, side_dim / 2], and a block of V
  // the second half.
  int side_dim = 0;
  // Only latent caches with one KV head: number of additional rows of head_dim elements in a block
  // of K, after its tokens' rows, for entries that stand for several tokens. If not 0, a block has
  // one group of side elements per entry instead of one per position. See Rows() and Entries().
  int entries = 0;

  bool is_latent() const { return latent_dim != 0; }
  int value_dim() const { return is_latent() ? latent_dim : head_dim; }
  // Returns the number of elements per block of K, and of V.
  int64_t BlockElements() const {
    const int64_t side = is_latent() ? 0 : int64_t{block_size} * (side_dim / 2);
    return int64_t{num_kv_heads} * (block_size + entries) * head_dim + side;
  }
  int64_t ValueBlockElements() const {
    if (!is_latent()) return BlockElements();
    return int64_t{num_kv_heads} * (entries > 0 ? entries : block_size) * side_dim;
  }
  int64_t BlockStride() const { return block_stride == 0 ? BlockElements() : block_stride; }

  // Returns the layout in which each row of a block, of a token or of an entry, is a position: row
  // r of the i-th block of a sequence is position i * (block_size + entries) + r.
  KvLayout Rows() const {
    KvLayout rows = *this;
    rows.block_size += rows.entries;
    rows.entries = 0;
    return rows;
  }
  // Returns the layout in which each entry is a position, for AppendSide and SelectPositions: entry
  // e of the i-th block of a sequence is position i * entries + e. Does not apply to K.
  KvLayout Entries() const {
    KvLayout entry = *this;
    entry.block_size = entries;
    entry.entries = 0;
    return entry;
  }
};

// One layer's cache memory.
struct KvCacheView {
  KvLayout layout;
  void* k = nullptr;
  void* v = nullptr;
  // For F8_E4M3: the value of a stored code is code * scale.
  float k_scale = 1;
  float v_scale = 1;
};

// Positions [begin, end) of a sequence whose tokens attend to each other in both directions, for
// example those of an image.
struct SeenSpan {
  int32_t begin = 0, end = 0;
};

// The tokens of one sequence in this step: rows [first_row, first_row + num_tokens) of the step's
// activations are its tokens at positions [context, context + num_tokens). The keys and values of
// the first `context` tokens are already in the cache.
struct AttentionSlice {
  int64_t first_row = 0;
  int32_t num_tokens = 0;
  int32_t context = 0;
  const int32_t* block_table = nullptr;  // [ceil((context + num_tokens) / block_size)]
  // Ascending and disjoint. A span that contains a token of the slice ends within the slice.
  const SeenSpan* spans = nullptr;
  int32_t num_spans = 0;
};

// How scores become weights.
struct AttentionScores {
  float scale = 1;     // multiplies q . k
  float soft_cap = 0;  // c: a scaled score s becomes c * tanh(s / c); 0: none
  // [num_heads], or null: none. A row's softmax for head h has an additional score sinks[h] whose
  // value is zero, so it only reduces the other weights.
  const float* sinks = nullptr;
  // Whether queries and softmax weights may be rounded to BF16 if keys and values are BF16 or
  // F8_E4M3, so that BF16 products can be used. This is faster, with relative errors of 2^-9 in
  // each.
  bool bf16_products = false;
  // Whether tokens in a slice's span also attend to later tokens of that span.
  bool sees_spans = false;
};

// Writes k and v of all the slices' tokens to their slots, rounded to the cache's type; for
// F8_E4M3, x / scale is rounded to nearest even and saturates at +-448 (NaN stays NaN). k and v:
// F32, row i at k + i * stride, [num_kv_heads, head_dim] contiguous inside a row. v: null for a
// latent cache.
void AppendKv(ThreadPool& pool, const KvCacheView& cache, std::span<const AttentionSlice> slices,
              const float* k, const float* v, int64_t stride);

// Like AppendKv, for the side elements of a cache (KvLayout::side_dim). x: F32, row i at x + i *
// stride, [num_kv_heads, side_dim], or [side_dim] if the cache is not latent. Scaled by k_scale.
void AppendSide(ThreadPool& pool, const KvCacheView& cache, std::span<const AttentionSlice> slices,
                const float* x, int64_t stride);

// The positions to which each row attends in sparse attention. Row i attends to positions[i *
// stride, i * stride + most), ascending. A row that sees at most `most` positions attends to all of
// them, and its list is not read.
//
// With `counts`, every row's list is read, in the list's order: row i attends to its first
// counts[i] positions (1 to `most`), regardless of its own position.
struct ChosenPositions {
  const int32_t* positions = nullptr;  // null: every row attends to all positions that it sees
  int64_t stride = 0;
  int32_t most = 0;
  const int32_t* counts = nullptr;  // [rows], or null
  // If not 0, the lists contain blocks of `block` consecutive positions, which is a multiple of
  // kBlockUnit, and each KV head has its own list: KV head h of row i attends to the positions up
  // to the row's own of the blocks positions[i * stride + h * most + [0, most)), ascending, of
  // which the last is the row's own block. A row that sees at most `most` blocks attends to all,
  // and its lists are not read.
  int32_t block = 0;
};

// Returns the bytes of scratch memory that Attention needs for any step of up to `max_rows` rows
// and `max_slices` slices of at most `max_context` tokens, on a pool of `num_threads`.
int64_t AttentionScratchBytes(const KvLayout& layout, int num_heads, int64_t max_rows,
                              int64_t max_slices, int64_t max_context, int num_threads);

// Computes out[row, h, :] = softmax(scores of q . K) V over the positions up to the row's own that
// `span` allows. q: F32, row i at q + i * q_stride, [num_heads, head_dim] contiguous inside a row;
// query head h reads KV head h / (num_heads / num_kv_heads). out: contiguous [rows, num_heads *
// value_dim], F32 or BF16 (`out_type`). AppendKv must have been called for the same slices. Blocks
// entirely before the first position that a slice's first row attends to are not read; their block
// table entries may be arbitrary.
//
// Positions are processed in chunks at fixed multiples, and each row combines its chunks in
// ascending order of position: the result of a row depends only on its own position and cache,
// never on the rest of the step or the number of threads. With chosen positions (latent caches
// only) or blocks (other caches only), the row's list is divided into chunks, so a list of all
// positions gives the same bits as no list. F8_E4M3 codes are converted exactly; k_scale is
// multiplied into the score scale, and the divisor of the result (the sum of weights) is divided by
// v_scale (k_scale in a latent cache). The keys of a chunk of a latent cache are rearranged into
// panels of keys and of values once per tile of query rows.
//
// REQUIRES: head_dim is even, from 2 to kMaxHeadDim, or up to kMaxKeyDim in a latent cache;
// latent_dim is even and at most head_dim; num_heads a multiple of num_kv_heads.
void Attention(ThreadPool& pool, const KvCacheView& cache, std::span<const AttentionSlice> slices,
               const AttentionSpan& span, const float* q, int64_t q_stride, int num_heads,
               const AttentionScores& scores, void* out, ElementType out_type,
               std::span<std::byte> scratch, const ChosenPositions& chosen = {});

}  // namespace sluice::kernels
