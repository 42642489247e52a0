#include "kernels/attention.h"

#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/attention_layout.h"
#include "kernels/kernel_table.h"
#include "kernels/work_queue.h"
#include "tensor/bfloat16.h"

namespace sluice::kernels {
namespace {

constexpr int kMaxTileRows =
    64;  // query rows (tokens x heads of the group) that share one pass over the cache
// A decoding slice is cut into chunks for several threads when it is longer than this share of a
// thread's work.
constexpr int64_t kUnitsPerThread = 4;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Scratch of one thread, in floats: q and running out, scores, a chunk's result, and panels for odd
// block sizes.
struct ThreadScratch {
  float* q;          // [kMaxTileRows, head_dim]
  float* scores;     // [kMaxTileRows, kAttentionChunk]
  float* chunk_out;  // [kMaxTileRows, head_dim]
  float* out;        // [kMaxTileRows, head_dim]
  std::byte* k_panels;
  std::byte* v_panels;

  static int64_t Bytes(const KvLayout& layout) {
    const int64_t tile = RoundUp(int64_t{kMaxTileRows} * layout.head_dim * 4, 64);
    const int64_t panels = HasPanels(layout) ? 0 : int64_t{kAttentionChunk} * layout.head_dim * 4;
    return 3 * tile + int64_t{kMaxTileRows} * kAttentionChunk * 4 + 2 * panels;
  }

  static ThreadScratch At(std::byte* memory, const KvLayout& layout) {
    const int64_t tile = RoundUp(int64_t{kMaxTileRows} * layout.head_dim * 4, 64);
    ThreadScratch scratch;
    const auto take = [&](int64_t bytes) {
      std::byte* taken = memory;
      memory += bytes;
      return taken;
    };
    scratch.q = reinterpret_cast<float*>(take(tile));
    scratch.scores = reinterpret_cast<float*>(take(int64_t{kMaxTileRows} * kAttentionChunk * 4));
    scratch.chunk_out = reinterpret_cast<float*>(take(tile));
    scratch.out = reinterpret_cast<float*>(take(tile));
    scratch.k_panels = take(int64_t{kAttentionChunk} * layout.head_dim * 4);
    scratch.v_panels = memory;
    return scratch;
  }
};

// What a row knows after some chunks: softmax numerators relative to exp(largest), their sum, and
// the weighted values.
struct RowState {
  float largest;
  float sum;
};

// Adds a later chunk's result to the row's. The same whether the chunks come from one thread or
// from several.
void Combine(RowState& row, float* out, const RowState& chunk, const float* chunk_out,
             int head_dim) {
  const float largest = row.largest > chunk.largest ? row.largest : chunk.largest;
  const float row_factor = std::exp(row.largest - largest);
  const float chunk_factor = std::exp(chunk.largest - largest);
  row.largest = largest;
  row.sum = row.sum * row_factor + chunk.sum * chunk_factor;
  for (int d = 0; d < head_dim; ++d) out[d] = out[d] * row_factor + chunk_out[d] * chunk_factor;
}

struct Call {
  const KvCacheView& cache;
  std::span<const AttentionSlice> slices;
  const float* q;
  int64_t q_stride;
  int num_heads;
  float scale;
  void* out;
  bool out_bf16;

  int group() const { return num_heads / cache.layout.num_kv_heads; }
  int head_dim() const { return cache.layout.head_dim; }
  // Tokens of a slice that are worked on together.
  int tile_tokens() const { return std::max(1, kMaxTileRows / group()); }

  void StoreRow(int64_t row, int head, const float* values, float sum) const {
    const int64_t offset = (row * num_heads + head) * head_dim() * (out_bf16 ? 2 : 4);
    Kernels().divide(values, sum, head_dim(), static_cast<std::byte*>(out) + offset, out_bf16);
  }
};

// The queries of `tokens` tokens from `token` on of one slice, and of the heads [head, head +
// heads) of one KV head's group, as rows [token][head].
struct Tile {
  const AttentionSlice* slice;
  int kv_head;
  int token;
  int tokens;
  int head;  // first query head
  int heads;

  int rows() const { return tokens * heads; }
  int positions() const { return slice->context + token + tokens; }  // that the last row sees
};

template <typename T>
void BringIntoPanels(const KvLayout& layout, const T* k_rows, const T* v_rows, int row_begin,
                     int row_end, int chunk_position, T* k_panels, T* v_panels) {
  constexpr bool kBf16 = sizeof(T) == 2;
  const int head_dim = layout.head_dim;
  for (int row = row_begin; row < row_end; ++row, ++chunk_position) {
    const int position = chunk_position % kAttentionPanelPositions;
    const int64_t panel = int64_t{chunk_position - position} * head_dim;
    for (int d = 0; d < head_dim; ++d) {
      k_panels[panel + KeyOffset(kBf16, head_dim, position, d)] =
          k_rows[int64_t{row} * head_dim + d];
      v_panels[panel + ValueOffset(kBf16, head_dim, position, d)] =
          v_rows[int64_t{row} * head_dim + d];
    }
  }
}

template <typename T>
void FindPanels(const Call& call, const Tile& tile, int first, int last,
                const ThreadScratch& scratch, AttentionChunkArgs& args) {
  const KvLayout& layout = call.cache.layout;
  const T* k = static_cast<const T*>(call.cache.k);
  const T* v = static_cast<const T*>(call.cache.v);
  const int64_t panel_elements = int64_t{kAttentionPanelPositions} * layout.head_dim;
  if (HasPanels(layout)) {
    for (int position = first, i = 0; position < last; position += kAttentionPanelPositions, ++i) {
      const int64_t block = tile.slice->block_table[position / layout.block_size];
      const int64_t panel = position % layout.block_size / kAttentionPanelPositions;
      const int64_t offset = HeadOffset(layout, block, tile.kv_head) + panel * panel_elements;
      args.k_panels[i] = k + offset;
      args.v_panels[i] = v + offset;
    }
    return;
  }
  T* k_panels = reinterpret_cast<T*>(scratch.k_panels);
  T* v_panels = reinterpret_cast<T*>(scratch.v_panels);
  for (int position = first; position < last;) {
    const int row = position % layout.block_size;
    const int count = std::min(layout.block_size - row, last - position);
    const int64_t offset =
        HeadOffset(layout, tile.slice->block_table[position / layout.block_size], tile.kv_head);
    BringIntoPanels(layout, k + offset, v + offset, row, row + count, position - first, k_panels,
                    v_panels);
    position += count;
  }
  for (int i = 0; i * kAttentionPanelPositions < last - first; ++i) {
    args.k_panels[i] = k_panels + i * panel_elements;
    args.v_panels[i] = v_panels + i * panel_elements;
  }
}

// Scaled queries of the tile, dense.
void GatherQueries(const Call& call, const Tile& tile, float* q) {
  const int dim = call.head_dim();
  for (int token = 0; token < tile.tokens; ++token) {
    const int64_t row = tile.slice->first_row + tile.token + token;
    const float* from = call.q + row * call.q_stride + int64_t{tile.head} * dim;
    for (int64_t i = 0; i < int64_t{tile.heads} * dim; ++i) *q++ = from[i] * call.scale;
  }
}

// One chunk for a tile whose queries were gathered. Returns each row's limit in `limits`.
void RunChunk(const Call& call, const Tile& tile, int chunk, const ThreadScratch& scratch,
              int* limits, float* largest, float* sum, float* out) {
  const int first = chunk * kAttentionChunk;
  const int last = std::min(tile.positions(), first + kAttentionChunk);
  AttentionChunkArgs args;
  args.q = scratch.q;
  args.rows = tile.rows();
  args.head_dim = call.head_dim();
  args.bf16 = call.cache.layout.type == ElementType::kBF16;
  for (int row = 0; row < args.rows; ++row) {
    const int seen = tile.slice->context + tile.token + row / tile.heads + 1;
    limits[row] = std::clamp(seen - first, 0, kAttentionChunk);
  }
  if (args.bf16)
    FindPanels<BFloat16>(call, tile, first, last, scratch, args);
  else
    FindPanels<float>(call, tile, first, last, scratch, args);
  args.limits = limits;
  args.scores = scratch.scores;
  args.largest = largest;
  args.sum = sum;
  args.out = out;
  Kernels().attention_chunk(args);
}

int Chunks(int positions) {
  return (positions + kAttentionChunk - 1) / kAttentionChunk;
}

void RunTile(const Call& call, const Tile& tile, const ThreadScratch& scratch) {
  const int dim = call.head_dim();
  GatherQueries(call, tile, scratch.q);
  std::array<int, kMaxTileRows> limits;
  std::array<float, kMaxTileRows> largest;
  std::array<float, kMaxTileRows> sum;
  std::array<RowState, kMaxTileRows> states;
  for (int chunk = 0; chunk < Chunks(tile.positions()); ++chunk) {
    float* chunk_out = chunk == 0 ? scratch.out : scratch.chunk_out;
    RunChunk(call, tile, chunk, scratch, limits.data(), largest.data(), sum.data(), chunk_out);
    for (int row = 0; row < tile.rows(); ++row) {
      const auto r = static_cast<size_t>(row);
      if (limits[r] == 0) continue;
      const RowState state{largest[r], sum[r]};
      if (chunk == 0)
        states[r] = state;
      else
        Combine(states[r], scratch.out + row * dim, state, chunk_out + row * dim, dim);
    }
  }
  for (int row = 0; row < tile.rows(); ++row) {
    call.StoreRow(tile.slice->first_row + tile.token + row / tile.heads,
                  tile.head + row % tile.heads, scratch.out + int64_t{row} * dim,
                  states[static_cast<size_t>(row)].sum);
  }
}

// The chunks of one decoding slice, worked on by several threads: their results wait here to be
// combined in order.
struct Split {
  const AttentionSlice* slice;
  int chunks;
  float* states;  // [chunks, num_heads, 2]
  float* out;     // [chunks, num_heads, head_dim]
};

void RunSplitChunk(const Call& call, const Split& split, const Tile& tile, int chunk,
                   const ThreadScratch& scratch) {
  GatherQueries(call, tile, scratch.q);
  std::array<int, kMaxTileRows> limits;
  std::array<float, kMaxTileRows> largest;
  std::array<float, kMaxTileRows> sum;
  const int64_t slot = int64_t{chunk} * call.num_heads + tile.head;
  RunChunk(call, tile, chunk, scratch, limits.data(), largest.data(), sum.data(),
           split.out + slot * call.head_dim());
  for (int row = 0; row < tile.rows(); ++row) {
    split.states[(slot + row) * 2] = largest[static_cast<size_t>(row)];
    split.states[(slot + row) * 2 + 1] = sum[static_cast<size_t>(row)];
  }
}

void CombineSplit(const Call& call, const Split& split, int head) {
  const int dim = call.head_dim();
  RowState state{};
  float* out = split.out + int64_t{head} * dim;
  for (int chunk = 0; chunk < split.chunks; ++chunk) {
    const int64_t slot = int64_t{chunk} * call.num_heads + head;
    const RowState next{split.states[slot * 2], split.states[slot * 2 + 1]};
    if (chunk == 0)
      state = next;
    else
      Combine(state, out, next, split.out + slot * dim, dim);
  }
  call.StoreRow(split.slice->first_row, head, out, state.sum);
}

int64_t SplitBytes(const KvLayout& layout, int num_heads, int64_t chunks) {
  return RoundUp(chunks * num_heads * (layout.head_dim + 2) * 4, 64);
}

// More slices than this cannot each hold more than the share of work that makes a slice worth
// splitting.
int64_t MaxSplits(const KvLayout& layout, int num_threads) {
  return num_threads == 1 ? 0 : kUnitsPerThread * num_threads / layout.num_kv_heads;
}

// Positions that the rows of a slice read, together.
int64_t Work(const AttentionSlice& slice) {
  return int64_t{slice.num_tokens} * slice.context +
         int64_t{slice.num_tokens} * (slice.num_tokens + 1) / 2;
}

// A decoding slice is split when one KV head of it is more than a fair unit of work.
bool IsSplit(const KvLayout& layout, const AttentionSlice& slice, int64_t total_work,
             int num_threads) {
  return num_threads > 1 && slice.num_tokens == 1 && Work(slice) > kAttentionChunk &&
         Work(slice) * kUnitsPerThread * num_threads > total_work * layout.num_kv_heads;
}

}  // namespace

int64_t AttentionScratchBytes(const KvLayout& layout, int num_heads, int64_t /*max_rows*/,
                              int64_t max_slices, int64_t max_context, int num_threads) {
  const int64_t splits = std::min(max_slices, MaxSplits(layout, num_threads));
  return num_threads * RoundUp(ThreadScratch::Bytes(layout), 64) +
         splits *
             SplitBytes(layout, num_heads, (max_context + kAttentionChunk - 1) / kAttentionChunk) +
         64;
}

void Attention(ThreadPool& pool, const KvCacheView& cache, std::span<const AttentionSlice> slices,
               const float* q, int64_t q_stride, int num_heads, float scale, void* out,
               ElementType out_type, std::span<std::byte> scratch) {
  const KvLayout& layout = cache.layout;
  CHECK(layout.head_dim >= 32 && layout.head_dim <= 256 && layout.head_dim % 8 == 0,
        "head_dim is 32 to 256 and a multiple of 8, not {}", layout.head_dim);
  CHECK_EQ(num_heads % layout.num_kv_heads, 0);
  CHECK(out_type == ElementType::kF32 || out_type == ElementType::kBF16,
        "the result is F32 or BF16, not {}", ElementTypeName(out_type));
  const Call call{cache,     slices, q,   q_stride,
                  num_heads, scale,  out, out_type == ElementType::kBF16};
  const int num_threads = pool.num_threads();

  // The scratch: one part for each thread, then the results of split slices.
  std::byte* memory = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  const std::byte* memory_end = scratch.data() + scratch.size();
  const int64_t thread_bytes = RoundUp(ThreadScratch::Bytes(layout), 64);
  std::byte* split_memory = memory + num_threads * thread_bytes;
  CHECK(split_memory <= memory_end, "attention needs more scratch than its {} bytes",
        scratch.size());

  int64_t total_work = 0;
  for (const AttentionSlice& slice : slices) total_work += Work(slice);

  // Units are numbered through the slices, the last tile of a slice first: it reads most, and the
  // longest work is best begun early. Each unit finds its slice by walking the list, which is short
  // against the work of a unit.
  const int group = call.group();
  const int head_tiles = (group + kMaxTileRows - 1) / kMaxTileRows;
  const int tile_tokens = call.tile_tokens();
  const auto token_tiles = [&](const AttentionSlice& slice) {
    return (slice.num_tokens + tile_tokens - 1) / tile_tokens;
  };
  const auto units_of = [&](const AttentionSlice& slice) -> int64_t {
    const int64_t parts = IsSplit(layout, slice, total_work, num_threads)
                              ? Chunks(slice.context + 1)
                              : token_tiles(slice);
    return parts * layout.num_kv_heads * head_tiles;
  };
  const auto split_of = [&](const AttentionSlice& slice) {
    std::byte* at = split_memory;
    for (const AttentionSlice* other = slices.data(); other != &slice; ++other) {
      if (IsSplit(layout, *other, total_work, num_threads))
        at += SplitBytes(layout, num_heads, Chunks(other->context + 1));
    }
    Split split{&slice, Chunks(slice.context + 1), reinterpret_cast<float*>(at), nullptr};
    CHECK(at + SplitBytes(layout, num_heads, split.chunks) <= memory_end,
          "attention needs more scratch than its {} bytes", scratch.size());
    split.out = split.states + int64_t{split.chunks} * num_heads * 2;
    return split;
  };

  int64_t units = 0;
  bool any_split = false;
  for (const AttentionSlice& slice : slices) {
    units += units_of(slice);
    any_split = any_split || IsSplit(layout, slice, total_work, num_threads);
  }
  ForEachUnit(pool, units, [&](int64_t unit, int thread) {
    const ThreadScratch thread_scratch = ThreadScratch::At(memory + thread * thread_bytes, layout);
    for (const AttentionSlice& slice : slices) {
      const int64_t slice_units = units_of(slice);
      if (unit >= slice_units) {
        unit -= slice_units;
        continue;
      }
      const int64_t heads = int64_t{layout.num_kv_heads} * head_tiles;
      const auto part = static_cast<int>(unit / heads);
      const auto kv_head = static_cast<int>(unit % heads / head_tiles);
      const auto head_begin = static_cast<int>(unit % head_tiles) * kMaxTileRows;
      Tile tile{.slice = &slice,
                .kv_head = kv_head,
                .token = 0,
                .tokens = 1,
                .head = kv_head * group + head_begin,
                .heads = std::min(kMaxTileRows, group - head_begin)};
      if (IsSplit(layout, slice, total_work, num_threads)) {
        RunSplitChunk(call, split_of(slice), tile, part, thread_scratch);
      } else {
        tile.token = (token_tiles(slice) - 1 - part) * tile_tokens;
        tile.tokens = std::min(tile_tokens, slice.num_tokens - tile.token);
        RunTile(call, tile, thread_scratch);
      }
      return;
    }
  });
  if (!any_split) return;
  pool.ParallelFor(num_heads, 1, [&](int64_t begin, int64_t end) {
    for (const AttentionSlice& slice : slices) {
      if (!IsSplit(layout, slice, total_work, num_threads)) continue;
      const Split split = split_of(slice);
      for (int64_t head = begin; head < end; ++head)
        CombineSplit(call, split, static_cast<int>(head));
    }
  });
}

}  // namespace sluice::kernels
