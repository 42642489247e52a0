#include "kernels/attention.h"

#include <array>
#include <cmath>
#include <new>

#include "base/check.h"
#include "base/integer.h"
#include "kernels/attention_layout.h"
#include "kernels/attention_panels.h"
#include "kernels/attention_scratch.h"
#include "kernels/bidirectional_attention.h"
#include "kernels/float_result.h"
#include "kernels/kernel_table.h"
#include "kernels/reference/reference.h"
#include "kernels/vector_kernel.h"
#include "kernels/work_queue.h"
#include "tensor/bfloat16.h"
#include "tensor/float16.h"
#include "tensor/float8.h"

namespace sluice::kernels {

SLUICE_VECTOR_KERNEL(DivideRow);
SLUICE_VECTOR_KERNEL(AddScaled);

namespace {

// A decoding slice is divided into chunks for several threads if its work exceeds a thread's share
// divided by this number.
constexpr int64_t kUnitsPerThread = 8;
// A unit of a split slice is a chunk of several KV heads, so many that each thread still gets this
// number of units.
constexpr int64_t kSplitUnitsPerThread = 4;

bool IsFp8(const KvLayout& layout) {
  return layout.type == ElementType::kF8E4M3;
}

// Returns whether codes fill whole vectors, as kernels that read codes directly require.
bool HasWholeCodes(const KvLayout& layout) {
  return layout.head_dim % 8 == 0;
}

// The state of a row after some chunks: softmax numerators relative to exp(largest), their sum, and
// the weighted values.
struct RowState {
  float largest;
  float sum;
};

// Adds a later chunk's result to the row's. The arithmetic is the same whether the chunks were
// computed by one thread or by several.
void Combine(RowState& row, float* out, const RowState& chunk, const float* chunk_out,
             int head_dim) {
  const float largest = row.largest > chunk.largest ? row.largest : chunk.largest;
  // At least one of the two factors is 1; exp is not called for it.
  const auto factor = [&](float of) { return of == largest ? 1.0f : std::exp(of - largest); };
  const float row_factor = factor(row.largest);
  const float chunk_factor = factor(chunk.largest);
  row.largest = largest;
  row.sum = row.sum * row_factor + chunk.sum * chunk_factor;
  kAddScaled(chunk_out, chunk_factor, row_factor, head_dim, out);
}

struct Call {
  const KvCacheView& cache;
  std::span<const AttentionSlice> slices;
  const AttentionSpan& span;
  const float* q;
  int64_t q_stride;
  int num_heads;
  bool both_ways;          // whether rows also attend to later positions
  int reach;               // maximum distance of a later position; 0: unlimited
  AttentionScores scores;  // its scale includes k_scale
  float v_scale;           // scale of the stored values
  void* out;
  bool out_bf16;
  ChosenPositions chosen;

  // Returns whether keys and values are read as BF16. F8_E4M3 codes are read as BF16 if the
  // products or the result are BF16.
  bool reads_bf16() const {
    return cache.layout.type == ElementType::kBF16 ||
           (IsFp8(cache.layout) && (out_bf16 || scores.bf16_products));
  }
  // Returns whether queries and softmax weights are rounded to BF16.
  bool rounds() const { return scores.bf16_products && reads_bf16(); }
  int group() const { return num_heads / cache.layout.num_kv_heads; }
  int head_dim() const { return cache.layout.head_dim; }
  int value_dim() const { return cache.layout.value_dim(); }
  // Returns the number of a slice's tokens that are computed together in a tile.
  int tile_tokens() const {
    return chosen.positions != nullptr ? 1 : std::max(1, kMaxTileRows / group());
  }
  // Returns the number of positions to which a row attends, if it sees `positions` positions.
  int Attended(int64_t row, int positions) const {
    if (chosen.counts != nullptr) return chosen.counts[row];
    if (chosen.block > 0) {
      const int before = (positions - 1) / chosen.block;  // blocks before the row's own
      return positions - std::max(0, before + 1 - chosen.most) * chosen.block;
    }
    return chosen.positions != nullptr ? std::min(positions, chosen.most) : positions;
  }
  // Returns the list of chosen positions for a row that sees `positions` positions; null: the row
  // attends to all positions.
  const int32_t* ListOf(int64_t row, int positions) const {
    const bool has_all = chosen.counts == nullptr && Attended(row, positions) == positions;
    return has_all ? nullptr : chosen.positions + row * chosen.stride;
  }
  // Returns the list of chosen blocks for a KV head of a row that sees `positions` positions; null:
  // it attends to all positions.
  const int32_t* BlocksOf(int64_t row, int kv_head, int positions) const {
    if (chosen.block == 0 || Attended(row, positions) == positions) return nullptr;
    return chosen.positions + row * chosen.stride + int64_t{kv_head} * chosen.most;
  }

  // Returns the end of the positions that a token at `position` sees, without regard to `reach`.
  // Non-decreasing in `position`.
  int SeenFrom(const AttentionSlice& slice, int position) const {
    if (!scores.sees_spans) return position + 1;
    for (int i = 0; i < slice.num_spans; ++i) {
      const SeenSpan& span = slice.spans[i];
      if (position < span.begin) break;
      if (position < span.end) return span.end;
    }
    return position + 1;
  }

  // For bidirectional attention: returns the end of the tokens of a slice to which the tokens
  // before `end` attend.
  int Seen(const AttentionSlice& slice, int end) const {
    return reach == 0 ? slice.num_tokens : std::min(slice.num_tokens, end + reach);
  }

  void StoreRow(int64_t row, int head, const float* values, const RowState& state) const {
    const int64_t offset = (row * num_heads + head) * value_dim();
    float sum = state.sum;
    if (scores.sinks != nullptr) sum += std::exp(scores.sinks[head] - state.largest);
    kDivideRow(values, sum / v_scale, value_dim(), ResultAt(out, offset, out_bf16), out_bf16);
  }
};

// A tile of query rows [token][head] of one slice: `tokens` tokens from `token` on, and query heads
// [head, head + heads). The heads belong to the group of one KV head or, if tokens is 1, may be all
// heads of `kv_heads` KV heads.
struct Tile {
  const AttentionSlice* slice;
  int kv_head;
  int kv_heads;
  int token;
  int tokens;
  int head;  // first query head
  int heads;

  int rows() const { return tokens * heads; }
  // Returns the end of the positions to which any row attends; with chosen positions, the length of
  // the list.
  int positions(const Call& call) const {
    const int end = slice->context + token + tokens;
    return call.both_ways ? slice->context + call.Seen(*slice, token + tokens)
                          : call.Attended(slice->first_row + token, call.SeenFrom(*slice, end - 1));
  }
  int first_seen(const AttentionSpan& span) const {
    return span.FirstSeen(slice->context + token);
  }  // of the first row, which has the smallest value of all rows
};

// Walks over the panels of one KV head of a slice in order, starting with the panel of `position`.
class PanelPlace {
 public:
  PanelPlace(const KvLayout& layout, const Tile& tile, int position)
      : layout_(layout),
        panels_(layout.block_size / kAttentionPanelPositions),
        kv_head_(tile.kv_head),
        block_(tile.slice->block_table + position / layout.block_size),
        panel_(position % layout.block_size / kAttentionPanelPositions) {}

  int64_t Offset() const {
    return HeadOffset(layout_, *block_, kv_head_) +
           int64_t{panel_} * kAttentionPanelPositions * layout_.head_dim;
  }
  void Next() {
    if (++panel_ < panels_) return;
    panel_ = 0;
    ++block_;
  }

 private:
  const KvLayout& layout_;
  int panels_;  // panels per block
  int kv_head_;
  const int32_t* block_;
  int panel_;
};

// Points `args` to the panels of positions [begin, end) of the chunk that starts at `first`,
// decoding them to scratch if needed. If P is Float8E4M3, the kernels read the codes directly.
// REQUIRES: HasPanels(layout) if P is Float8E4M3.
template <typename T, typename P>
void FindPanels(const Call& call, const Tile& tile, int first, int begin, int end,
                const ThreadScratch& scratch, AttentionChunkArgs& args) {
  const KvLayout& layout = call.cache.layout;
  const T* k = static_cast<const T*>(call.cache.k);
  const T* v = static_cast<const T*>(call.cache.v);
  P* k_panels = reinterpret_cast<P*>(scratch.k_panels);
  P* v_panels = reinterpret_cast<P*>(scratch.v_panels);
  const int64_t panel_elements = int64_t{kAttentionPanelPositions} * layout.head_dim;
  const int first_panel = (begin - first) / kAttentionPanelPositions;
  if (HasPanels(layout)) {
    int position = first + first_panel * kAttentionPanelPositions;
    PanelPlace place(layout, tile, position);
    for (int i = first_panel; position < end;
         position += kAttentionPanelPositions, ++i, place.Next()) {
      const int64_t offset = place.Offset();
      if constexpr (std::is_same_v<T, P>) {
        args.k_panels[i] = k + offset;
        args.v_panels[i] = v + offset;
      } else {
        DecodeKeys(k + offset, layout.head_dim, k_panels + i * panel_elements);
        DecodeValues(v + offset, layout.head_dim, v_panels + i * panel_elements);
        args.k_panels[i] = k_panels + i * panel_elements;
        args.v_panels[i] = v_panels + i * panel_elements;
      }
    }
    return;
  }
  if constexpr (!std::is_same_v<P, Float8E4M3>) {
    for (int position = begin; position < end;) {
      const int row = position % layout.block_size;
      const int count = std::min(layout.block_size - row, end - position);
      const int64_t offset =
          HeadOffset(layout, tile.slice->block_table[position / layout.block_size], tile.kv_head);
      BringIntoPanels(layout, k + offset, v + offset, row, row + count, position - first, k_panels,
                      v_panels);
      position += count;
    }
    for (int i = first_panel; i * kAttentionPanelPositions < end - first; ++i) {
      args.k_panels[i] = k_panels + i * panel_elements;
      args.v_panels[i] = v_panels + i * panel_elements;
    }
  }
}

// Like FindPanels, for a tile of one token and its chosen blocks: position i of a chunk is the
// position with number `first` + i of all positions of the list.
template <typename T, typename P>
void FindChosenPanels(const Call& call, const Tile& tile, const int32_t* blocks, int first,
                      int begin, int end, const ThreadScratch& scratch, AttentionChunkArgs& args) {
  const KvLayout& layout = call.cache.layout;
  const int block = call.chosen.block;
  const int64_t panel_elements = int64_t{kAttentionPanelPositions} * layout.head_dim;
  for (int i = (begin - first) / kAttentionPanelPositions;
       first + i * kAttentionPanelPositions < end; ++i) {
    // The positions of a panel are consecutive in the sequence. The copies of its arguments make
    // them the first positions of a chunk.
    const int at = first + i * kAttentionPanelPositions;
    const int position = blocks[at / block] * block + at % block;
    const int count = std::min(kAttentionPanelPositions, end - at);
    ThreadScratch own = scratch;
    own.k_panels += i * panel_elements * int64_t{sizeof(P)};
    own.v_panels += i * panel_elements * int64_t{sizeof(P)};
    AttentionChunkArgs found;
    FindPanels<T, P>(call, tile, position, position, position + count, own, found);
    args.k_panels[i] = found.k_panels[0];
    args.v_panels[i] = found.v_panels[0];
  }
}

// Like FindPanels, for a latent cache, whose rows are copied into panels.
template <typename T, typename P>
void MakePanels(const Call& call, const Tile& tile, int first, int begin, int end,
                const ThreadScratch& scratch, AttentionChunkArgs& args) {
  const KvLayout& layout = call.cache.layout;
  const auto* const keys = static_cast<const T*>(call.cache.k);
  const int32_t* const list =
      call.ListOf(tile.slice->first_row + tile.token, tile.slice->context + tile.token + 1);
  const auto row_of = [&](int at) {
    const int position = list == nullptr ? at : list[at];
    return keys +
           HeadOffset(layout, tile.slice->block_table[position / layout.block_size], tile.kv_head) +
           int64_t{position % layout.block_size} * layout.head_dim;
  };
  for (int i = (begin - first) / kAttentionPanelPositions;
       first + i * kAttentionPanelPositions < end; ++i) {
    const T* rows[kAttentionPanelPositions];
    // Positions that no row sees may contain anything; they are clamped to valid ones.
    for (int p = 0; p < kAttentionPanelPositions; ++p)
      rows[p] = row_of(std::clamp(first + i * kAttentionPanelPositions + p, begin, end - 1));
    const int64_t panel = int64_t{i} * kAttentionPanelPositions;
    P* const k_panel = reinterpret_cast<P*>(scratch.k_panels) + panel * layout.head_dim;
    P* const v_panel = reinterpret_cast<P*>(scratch.v_panels) + panel * layout.latent_dim;
    MakeLatentPanels(layout, rows, k_panel, v_panel);
    args.k_panels[i] = k_panel;
    args.v_panels[i] = v_panel;
  }
}

template <typename T, typename P>
void TakePanels(const Call& call, const Tile& tile, int first, int begin, int end,
                const ThreadScratch& scratch, AttentionChunkArgs& args) {
  if constexpr (!std::is_same_v<P, Float8E4M3>) {
    if (call.cache.layout.is_latent())
      return MakePanels<T, P>(call, tile, first, begin, end, scratch, args);
  }
  const int32_t* const blocks = call.BlocksOf(tile.slice->first_row + tile.token, tile.kv_head,
                                              tile.slice->context + tile.token + 1);
  if (blocks != nullptr)
    return FindChosenPanels<T, P>(call, tile, blocks, first, begin, end, scratch, args);
  FindPanels<T, P>(call, tile, first, begin, end, scratch, args);
}

// Copies the tile's queries to q, scaled and contiguous.
void GatherQueries(const Call& call, const Tile& tile, float* q) {
  const int dim = call.head_dim();
  for (int token = 0; token < tile.tokens; ++token) {
    const int64_t row = tile.slice->first_row + tile.token + token;
    const float* from = call.q + row * call.q_stride + int64_t{tile.head} * dim;
    for (int64_t i = 0; i < int64_t{tile.heads} * dim; ++i) *q++ = from[i] * call.scores.scale;
  }
}

// For each row of a tile: the range of the chunk to which it attends (AttentionChunkArgs), and its
// softmax state after the chunk.
struct ChunkRows {
  std::array<int, kMaxTileRows> starts;
  std::array<int, kMaxTileRows> limits;
  std::array<float, kMaxTileRows> largest;
  std::array<float, kMaxTileRows> sum;
};

// Sets the panels of `args` that are probably read next: those of the next chunk of the same KV
// head if one tile reads all chunks, else those of the next head.
void FindNextPanels(const Call& call, const Tile& tile, int chunk, bool is_split,
                    AttentionChunkArgs& args) {
  std::fill(std::begin(args.next_k_panels), std::end(args.next_k_panels), args.q);
  std::fill(std::begin(args.next_v_panels), std::end(args.next_v_panels), args.q);
  const KvLayout& layout = call.cache.layout;
  if (!HasPanels(layout) || call.chosen.block > 0) return;
  Tile next = tile;
  const bool has_more = (chunk + 1) * kAttentionChunk < tile.positions(call);
  const bool has_heads = tile.kv_head + 1 < layout.num_kv_heads;
  if (!is_split && has_more) {
    ++chunk;
  } else if (has_heads) {
    ++next.kv_head;
    if (!is_split) chunk = tile.first_seen(call.span) / kAttentionChunk;
  } else if (is_split && has_more) {
    next.kv_head = 0;
    ++chunk;
  } else {
    return;
  }
  const int first_seen = tile.first_seen(call.span);
  int position =
      std::max(chunk * kAttentionChunk, first_seen - first_seen % kAttentionPanelPositions);
  PanelPlace place(layout, next, position);
  const int64_t element_bytes = BitsPerElement(layout.type) / 8;
  for (int i = 0; i < kAttentionPanels && position < tile.positions(call); ++i) {
    const int64_t offset = place.Offset() * element_bytes;
    args.next_k_panels[i] = static_cast<const std::byte*>(call.cache.k) + offset;
    args.next_v_panels[i] = static_cast<const std::byte*>(call.cache.v) + offset;
    position += kAttentionPanelPositions;
    place.Next();
  }
}

// Returns the maximum number of KV heads of a tile with one token.
int KvHeadsAtOnce(const Call& call) {
  const KvLayout& layout = call.cache.layout;
  const bool has_blocks = HasPanels(layout) &&
                          kAttentionHeadsPanels * kAttentionPanelPositions % layout.block_size == 0;
  if (Kernels().attention_heads == nullptr || !has_blocks || !call.rounds() ||
      call.chosen.block > 0 ||
      (IsFp8(layout) && (!HasWholeCodes(layout) || call.group() > Kernels().attention_code_rows))) {
    return 1;
  }
  return std::clamp(kMaxTileRows / call.group(), 1, layout.num_kv_heads);
}

// Like RunChunk, for a tile of several KV heads.
void RunHeadsChunk(const Call& call, const Tile& tile, int chunk, const ThreadScratch& scratch,
                   ChunkRows& rows, float* out) {
  const KvLayout& layout = call.cache.layout;
  const int first = chunk * kAttentionChunk;
  const int position = tile.slice->context + tile.token;
  AttentionHeadsArgs args;
  args.q = scratch.q;
  args.heads = tile.kv_heads;
  args.rows = tile.heads / tile.kv_heads;
  args.head_dim = layout.head_dim;
  args.codes = IsFp8(layout);
  args.soft_cap = call.scores.soft_cap;
  args.start = std::max(call.span.FirstSeen(position) - first, 0);
  args.limit = std::min(position + 1 - first, kAttentionChunk);
  args.block_panels = layout.block_size / kAttentionPanelPositions;
  const int64_t element_bytes = BitsPerElement(layout.type) / 8;
  const auto offset = [&](int at) {
    return HeadOffset(layout, tile.slice->block_table[at / layout.block_size], tile.kv_head) *
           element_bytes;
  };
  for (int at = args.start / layout.block_size; at * layout.block_size < args.limit; ++at) {
    const int64_t bytes = offset(first + at * layout.block_size);
    args.k_blocks[at] = static_cast<const std::byte*>(call.cache.k) + bytes;
    args.v_blocks[at] = static_cast<const std::byte*>(call.cache.v) + bytes;
  }
  int next = first + kAttentionChunk;
  for (const void*& block : args.next_k_blocks) {
    block = next <= position ? static_cast<const std::byte*>(call.cache.k) + offset(next)
                             : static_cast<const void*>(scratch.q);
    next += layout.block_size;
  }
  args.scores = scratch.scores;
  args.largest = rows.largest.data();
  args.sum = rows.sum.data();
  args.out = out;
  std::fill_n(rows.limits.begin(), tile.heads, args.limit);
  Kernels().attention_heads(args);
}

// Computes one chunk for a tile whose queries were gathered. `is_split`: whether the chunks of a
// head are computed separately, not one after another by the same thread.
void RunChunk(const Call& call, const Tile& tile, int chunk, bool is_split,
              const ThreadScratch& scratch, ChunkRows& rows, float* out) {
  if (tile.kv_heads > 1) return RunHeadsChunk(call, tile, chunk, scratch, rows, out);
  const int first = chunk * kAttentionChunk;
  const int begin = std::max(first, tile.first_seen(call.span));
  const int end = std::min(tile.positions(call), first + kAttentionChunk);
  AttentionChunkArgs args;
  args.q = scratch.q;
  args.rows = tile.rows();
  args.head_dim = call.head_dim();
  args.value_dim = call.value_dim();
  args.bf16 = call.reads_bf16();
  args.rounds = call.rounds();
  args.codes = IsFp8(call.cache.layout) && HasPanels(call.cache.layout) &&
               HasWholeCodes(call.cache.layout) && args.rounds &&
               args.rows <= Kernels().attention_code_rows;
  args.soft_cap = call.scores.soft_cap;
  FindNextPanels(call, tile, chunk, is_split, args);
  for (int row = 0; row < args.rows; ++row) {
    const int position = tile.slice->context + tile.token + row / tile.heads;
    const int start = std::max(call.span.FirstSeen(position) - first, 0);
    const int64_t index = tile.slice->first_row + tile.token + row / tile.heads;
    const int seen = call.both_ways ? call.Seen(*tile.slice, position + 1)
                                    : call.Attended(index, call.SeenFrom(*tile.slice, position));
    const int limit = std::clamp(seen - first, 0, kAttentionChunk);
    const auto r = static_cast<size_t>(row);
    rows.starts[r] = start < limit ? start : 0;
    rows.limits[r] = start < limit ? limit : 0;
  }
  switch (call.cache.layout.type) {
    case ElementType::kBF16:
      TakePanels<BFloat16, BFloat16>(call, tile, first, begin, end, scratch, args);
      break;
    case ElementType::kF8E4M3:
      if (args.codes)
        TakePanels<Float8E4M3, Float8E4M3>(call, tile, first, begin, end, scratch, args);
      else if (call.reads_bf16())
        TakePanels<Float8E4M3, BFloat16>(call, tile, first, begin, end, scratch, args);
      else
        TakePanels<Float8E4M3, float>(call, tile, first, begin, end, scratch, args);
      break;
    case ElementType::kF16:
      TakePanels<Float16, float>(call, tile, first, begin, end, scratch, args);
      break;
    default: TakePanels<float, float>(call, tile, first, begin, end, scratch, args);
  }
  args.starts = rows.starts.data();
  args.limits = rows.limits.data();
  args.scores = scratch.scores;
  args.largest = rows.largest.data();
  args.sum = rows.sum.data();
  args.out = out;
  Kernels().attention_chunk(args);
}

int Chunks(int positions) {
  return (positions + kAttentionChunk - 1) / kAttentionChunk;
}

void RunTile(const Call& call, const Tile& tile, const ThreadScratch& scratch) {
  const int dim = call.value_dim();
  GatherQueries(call, tile, scratch.q);
  ChunkRows rows;
  std::array<RowState, kMaxTileRows> states;
  std::array<bool, kMaxTileRows> begun = {};
  const int first_chunk = tile.first_seen(call.span) / kAttentionChunk;
  for (int chunk = first_chunk; chunk < Chunks(tile.positions(call)); ++chunk) {
    float* chunk_out = chunk == first_chunk ? scratch.out : scratch.chunk_out;
    RunChunk(call, tile, chunk, /*is_split=*/false, scratch, rows, chunk_out);
    for (int row = 0; row < tile.rows(); ++row) {
      const auto r = static_cast<size_t>(row);
      if (rows.limits[r] == 0) continue;
      const RowState state{rows.largest[r], rows.sum[r]};
      float* out = scratch.out + int64_t{row} * dim;
      const float* row_out = chunk_out + int64_t{row} * dim;
      if (begun[r]) {
        Combine(states[r], out, state, row_out, dim);
        continue;
      }
      begun[r] = true;
      states[r] = state;
      if (row_out != out) std::copy_n(row_out, dim, out);
    }
  }
  for (int row = 0; row < tile.rows(); ++row) {
    call.StoreRow(tile.slice->first_row + tile.token + row / tile.heads,
                  tile.head + row % tile.heads, scratch.out + int64_t{row} * dim,
                  states[static_cast<size_t>(row)]);
  }
}

// The work of one slice: units [first_unit, first_unit of the next slice). Several threads compute
// the chunks of a split decoding slice; `states` and `out` contain the chunks' results until they
// are combined in order.
struct SliceUnits {
  const AttentionSlice* slice = nullptr;
  int64_t first_unit = 0;
  int kv_heads = 1;  // number of KV heads per unit
  int first_chunk = 0;
  int chunks = 0;           // 0: one thread computes each tile of the slice
  float* states = nullptr;  // [chunks, num_heads, 2]
  float* out = nullptr;     // [chunks, num_heads, value_dim]

  bool is_split() const { return chunks > 0; }
};

// `part`: index of the chunk among those to which the slice attends.
void RunSplitChunk(const Call& call, const SliceUnits& split, const Tile& tile, int part,
                   const ThreadScratch& scratch) {
  GatherQueries(call, tile, scratch.q);
  ChunkRows rows;
  const int64_t slot = int64_t{part} * call.num_heads + tile.head;
  RunChunk(call, tile, split.first_chunk + part, /*is_split=*/true, scratch, rows,
           split.out + slot * call.value_dim());
  for (int row = 0; row < tile.rows(); ++row) {
    split.states[(slot + row) * 2] = rows.largest[static_cast<size_t>(row)];
    split.states[(slot + row) * 2 + 1] = rows.sum[static_cast<size_t>(row)];
  }
}

void CombineSplit(const Call& call, const SliceUnits& split, int head) {
  const int dim = call.value_dim();
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
  call.StoreRow(split.slice->first_row, head, out, state);
}

int64_t SplitBytes(const KvLayout& layout, int num_heads, int64_t chunks) {
  return RoundUp(chunks * num_heads * (layout.value_dim() + 2) * 4, 64);
}

int64_t SliceTableBytes(int64_t num_slices) {
  return RoundUp(num_slices * int64_t{sizeof(SliceUnits)}, 64);
}

// Returns the maximum number of slices whose work is large enough for a split.
int64_t MaxSplits(const KvLayout& layout, int num_threads) {
  return num_threads == 1 ? 0 : kUnitsPerThread * num_threads / layout.num_kv_heads;
}

// Returns the total number of positions that the rows of a slice attend to; an upper bound if there
// are several rows.
int64_t Work(const AttentionSlice& slice, const AttentionSpan& span) {
  if (slice.num_tokens == 1) return int64_t{slice.context} + 1 - span.FirstSeen(slice.context);
  int64_t work = int64_t{slice.num_tokens} * slice.context +
                 int64_t{slice.num_tokens} * (slice.num_tokens + 1) / 2;
  for (const int32_t most : {span.chunk, span.window}) {
    if (most > 0) work = std::min(work, int64_t{slice.num_tokens} * most);
  }
  return work;
}

// Returns the number of a slice's KV heads whose work equals one unit, if the step's work is
// divided evenly.
int64_t FairHeads(const KvLayout& layout, const AttentionSpan& span, const AttentionSlice& slice,
                  int64_t total_work, int num_threads) {
  if (num_threads == 1) return layout.num_kv_heads;
  return total_work * layout.num_kv_heads /
         (std::max<int64_t>(Work(slice, span), 1) * kUnitsPerThread * num_threads);
}

// Returns whether to split a slice: it has one token and more than a chunk of positions, and the
// work of `least` of its heads exceeds one unit (FairHeads).
bool IsSplit(const KvLayout& layout, const AttentionSpan& span, const AttentionSlice& slice,
             int64_t total_work, int num_threads, int least) {
  return slice.num_tokens == 1 && Work(slice, span) > kAttentionChunk &&
         FairHeads(layout, span, slice, total_work, num_threads) < least;
}

}  // namespace

int64_t AttentionScratchBytes(const KvLayout& layout, int num_heads, int64_t /*max_rows*/,
                              int64_t max_slices, int64_t max_context, int num_threads) {
  const int64_t splits = std::min(max_slices, MaxSplits(layout, num_threads));
  return num_threads * RoundUp(ThreadScratch::Bytes(layout), 64) + SliceTableBytes(max_slices) +
         splits *
             SplitBytes(layout, num_heads, (max_context + kAttentionChunk - 1) / kAttentionChunk) +
         64;
}

namespace {

void Attend(ThreadPool& pool, const KvCacheView& cache, std::span<const AttentionSlice> slices,
            const AttentionSpan& span, bool both_ways, int reach, const float* q, int64_t q_stride,
            int num_heads, const AttentionScores& scores, void* out, ElementType out_type,
            std::span<std::byte> scratch, const ChosenPositions& chosen) {
  const KvLayout& layout = cache.layout;
  CheckKvType(layout);
  const int widest = layout.is_latent() ? kMaxKeyDim : kMaxHeadDim;
  CHECK(layout.head_dim >= 2 && layout.head_dim <= widest && layout.head_dim % 2 == 0,
        "head_dim is 2 to {} and even, not {}", widest, layout.head_dim);
  CHECK(layout.value_dim() <= layout.head_dim && layout.value_dim() % 2 == 0,
        "values are an even part of keys of {}, not {}", layout.head_dim, layout.value_dim());
  CHECK(chosen.positions == nullptr || (layout.is_latent() == (chosen.block == 0) &&
                                        span.sees_all() && !both_ways && !scores.sees_spans),
        "positions are chosen of all of a latent cache, blocks of all of another cache");
  CHECK(chosen.block % kBlockUnit == 0, "blocks of {} positions", chosen.block);
  CHECK_EQ(num_heads % layout.num_kv_heads, 0);
  CHECK(out_type == ElementType::kF32 || out_type == ElementType::kBF16,
        "the result is F32 or BF16, not {}", ElementTypeName(out_type));
  Call call{.cache = cache,
            .slices = slices,
            .span = span,
            .q = q,
            .q_stride = q_stride,
            .num_heads = num_heads,
            .both_ways = both_ways,
            .reach = reach,
            .scores = scores,
            .v_scale = !IsFp8(layout)       ? 1
                       : layout.is_latent() ? cache.k_scale
                                            : cache.v_scale,
            .out = out,
            .out_bf16 = out_type == ElementType::kBF16,
            .chosen = chosen};
  if (IsFp8(layout)) call.scores.scale *= cache.k_scale;
  const int num_threads = pool.num_threads();

  // Scratch layout: a part for each thread, the table of slices, the results of split slices.
  std::byte* memory = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  const std::byte* memory_end = scratch.data() + scratch.size();
  const int64_t thread_bytes = RoundUp(ThreadScratch::Bytes(layout), 64);
  std::byte* const table = memory + num_threads * thread_bytes;
  std::byte* split_memory = table + SliceTableBytes(static_cast<int64_t>(slices.size()));
  CHECK(split_memory <= memory_end, "attention needs more scratch than its {} bytes",
        scratch.size());

  // For the amount of work, chosen positions count like a window of the same size.
  AttentionSpan read = span;
  if (chosen.positions != nullptr) read.window = chosen.most * std::max(1, chosen.block);
  int64_t total_work = 0;
  for (const AttentionSlice& slice : slices) total_work += Work(slice, read);

  const std::span<SliceUnits> parts(reinterpret_cast<SliceUnits*>(table), slices.size());
  bool any_split = false;
  const int kv_heads_at_once = KvHeadsAtOnce(call);
  const int64_t fair_of_chunk =
      total_work * layout.num_kv_heads / (kSplitUnitsPerThread * num_threads * kAttentionChunk);
  const auto split = [&](SliceUnits& part) {
    any_split = true;
    part.kv_heads = static_cast<int>(std::clamp<int64_t>(fair_of_chunk, 1, kv_heads_at_once));
    part.first_chunk = span.FirstSeen(part.slice->context) / kAttentionChunk;
    part.chunks =
        Chunks(call.Attended(part.slice->first_row, part.slice->context + 1)) - part.first_chunk;
    part.states = reinterpret_cast<float*>(split_memory);
    part.out = part.states + int64_t{part.chunks} * num_heads * 2;
    split_memory += SplitBytes(layout, num_heads, part.chunks);
  };
  // First splits slices in which a single head exceeds one unit of work (FairHeads). Then, while
  // scratch remains, splits slices in which `kv_heads_at_once` heads together exceed one unit, so
  // that blocks are read contiguously.
  for (size_t i = 0; i < slices.size(); ++i) {
    const AttentionSlice& slice = slices[i];
    SliceUnits& part = *new (&parts[i]) SliceUnits{.slice = &slice};
    if (!IsSplit(layout, read, slice, total_work, num_threads, 1)) continue;
    split(part);
    CHECK(split_memory <= memory_end, "attention needs more scratch than its {} bytes",
          scratch.size());
  }
  for (SliceUnits& part : parts) {
    const AttentionSlice& slice = *part.slice;
    if (part.is_split() || slice.num_tokens > 1 || kv_heads_at_once == 1) continue;
    const int64_t bytes =
        SplitBytes(layout, num_heads, Chunks(call.Attended(slice.first_row, slice.context + 1)));
    if (bytes <= memory_end - split_memory &&
        IsSplit(layout, read, slice, total_work, num_threads, kv_heads_at_once)) {
      split(part);
    } else {
      const int64_t fair = FairHeads(layout, read, slice, total_work, num_threads);
      part.kv_heads = static_cast<int>(std::clamp<int64_t>(fair, 1, kv_heads_at_once));
    }
  }

  // Numbers units slice by slice, the last tile of a slice first: it attends to the most positions,
  // and the longest work should start first.
  const int group = call.group();
  const int head_tiles = (group + kMaxTileRows - 1) / kMaxTileRows;
  const int tile_tokens = call.tile_tokens();
  const auto token_tiles = [&](const AttentionSlice& slice) {
    return (slice.num_tokens + tile_tokens - 1) / tile_tokens;
  };
  const auto head_units = [&](const SliceUnits& part) {
    return int64_t{head_tiles} * ((layout.num_kv_heads + part.kv_heads - 1) / part.kv_heads);
  };
  int64_t units = 0;
  for (SliceUnits& part : parts) {
    part.first_unit = units;
    units += head_units(part) * (part.is_split() ? part.chunks : token_tiles(*part.slice));
  }
  ForEachUnit(pool, units, [&](int64_t unit, int thread) {
    const ThreadScratch thread_scratch = ThreadScratch::At(memory + thread * thread_bytes, layout);
    const SliceUnits& part = PartOfUnit(parts, unit, &SliceUnits::first_unit);
    const AttentionSlice& slice = *part.slice;
    unit -= part.first_unit;
    const int64_t heads = head_units(part);
    const auto index = static_cast<int>(unit / heads);
    const auto kv_head = static_cast<int>(unit % heads / head_tiles) * part.kv_heads;
    const int kv_heads = std::min(part.kv_heads, layout.num_kv_heads - kv_head);
    const auto head_begin = static_cast<int>(unit % head_tiles) * kMaxTileRows;
    Tile tile{
        .slice = &slice,
        .kv_head = kv_head,
        .kv_heads = kv_heads,
        .token = 0,
        .tokens = 1,
        .head = kv_head * group + head_begin,
        .heads = kv_heads > 1 ? kv_heads * group : std::min(kMaxTileRows, group - head_begin)};
    if (part.is_split()) {
      RunSplitChunk(call, part, tile, index, thread_scratch);
    } else {
      tile.token = (token_tiles(slice) - 1 - index) * tile_tokens;
      tile.tokens = std::min(tile_tokens, slice.num_tokens - tile.token);
      RunTile(call, tile, thread_scratch);
    }
  });
  if (!any_split) return;
  pool.ParallelFor(num_heads, 1, [&](int64_t begin, int64_t end) {
    for (const SliceUnits& part : parts) {
      if (!part.is_split()) continue;
      for (int64_t head = begin; head < end; ++head)
        CombineSplit(call, part, static_cast<int>(head));
    }
  });
}

}  // namespace

void Attention(ThreadPool& pool, const KvCacheView& cache, std::span<const AttentionSlice> slices,
               const AttentionSpan& span, const float* q, int64_t q_stride, int num_heads,
               const AttentionScores& scores, void* out, ElementType out_type,
               std::span<std::byte> scratch, const ChosenPositions& chosen) {
  Attend(pool, cache, slices, span, /*both_ways=*/false, /*reach=*/0, q, q_stride, num_heads,
         scores, out, out_type, scratch, chosen);
}

void BidirectionalAttention(ThreadPool& pool, const KvCacheView& cache,
                            std::span<const AttentionSlice> slices, int32_t reach, const float* q,
                            int64_t q_stride, int num_heads, float scale, void* out,
                            ElementType out_type, std::span<std::byte> scratch,
                            bool bf16_products) {
  const AttentionSpan span{.chunk = 0, .window = reach == 0 ? 0 : reach + 1};
  Attend(pool, cache, slices, span, /*both_ways=*/true, reach, q, q_stride, num_heads,
         {.scale = scale, .bf16_products = bf16_products}, out, out_type, scratch, {});
}

}  // namespace sluice::kernels
