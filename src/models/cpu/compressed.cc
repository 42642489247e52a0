// Compressed attention, except attention itself, and the residual streams of the same models.
#include <algorithm>
#include <array>
#include <span>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/compress.h"
#include "kernels/residual_streams.h"
#include "kernels/rope.h"
#include "kernels/select_positions.h"
#include "models/cpu/snapshots.h"
#include "models/cpu/walk.h"

namespace sluice {
namespace {

// Maximum number of entries that StoreEntries normalizes and appends to the cache at once.
constexpr size_t kEntriesAtOnce = 64;

// Returns the number of entries per block that are in use, if a block has several.
int32_t EntriesUsed(const kernels::KvLayout& layout, int32_t rate) {
  return std::max(1, layout.block_size / rate);
}

// Returns the block that has an entry: the block of the entry's last token, counted from the
// sequence's first block.
int32_t BlockOf(const kernels::KvLayout& layout, int32_t rate, int32_t entry) {
  return ((entry + 1) * rate - 1) / layout.block_size;
}

// Returns the position of an entry in KvLayout::Entries().
int32_t PlaceOf(const kernels::KvLayout& layout, int32_t rate, int32_t entry) {
  return BlockOf(layout, rate, entry) * layout.entries + entry % EntriesUsed(layout, rate);
}

// Returns the positions of an entry and of a token in KvLayout::Rows().
int32_t RowOfEntry(const kernels::KvLayout& layout, int32_t rate, int32_t entry) {
  return BlockOf(layout, rate, entry) * (layout.block_size + layout.entries) + layout.block_size +
         entry % EntriesUsed(layout, rate);
}
int32_t RowOfToken(const kernels::KvLayout& layout, int32_t position) {
  return position / layout.block_size * (layout.block_size + layout.entries) +
         position % layout.block_size;
}

kernels::StreamRule RuleOf(const StreamsSpec& spec, int64_t width, float norm_eps) {
  return {.count = spec.count,
          .width = width,
          .iterations = spec.iterations,
          .eps = spec.eps,
          .norm_eps = norm_eps};
}

}  // namespace

void CpuWalk::operator()(const program::RotateHeads& op) {
  const int64_t width = op.heads * op.head_dim;
  float* const x = F32At(op.x, width) + op.head_dim - op.rotated;
  const auto rotate = op.is_inverse ? kernels::UndoRope : kernels::ApplyRope;
  rotate(pool_, x, width, rows_, static_cast<int>(op.heads), static_cast<int>(op.head_dim),
         static_cast<int>(op.rotated), op.style, F32At(op.cos_sin, op.rotated));
}

// Normalizes, rotates and stores the entries of groups that end in this step. `x`: rows with the
// entries.
void CpuWalk::StoreEntries(const program::CompressKeys& op, const AttentionSpec& spec, float* x,
                           int64_t stride) const {
  const LatentSpec& latent = *spec.latent;
  const int32_t rate = latent.compressed->rate;
  const int dim = op.is_index ? latent.indexer->head_dim : spec.head_dim;
  const std::vector<float>& frequencies =
      program_.rope_tables[static_cast<size_t>(spec.rope_table)];
  const kernels::KvCacheView cache = CacheOf(op.cache_layer, op.k_scale, op.k_scale);
  kernels::KvCacheView target = cache;
  target.layout = op.is_index ? cache.layout.Entries() : cache.layout.Rows();
  std::array<kernels::AttentionSlice, kEntriesAtOnce> found;
  size_t count = 0;
  const auto store = [&] {
    pool_.ParallelFor(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = found[static_cast<size_t>(i)].first_row;
        const int64_t last = step_.input.positions[static_cast<size_t>(row)];
        kernels::FinishEntry(x + row * stride, dim, Vector(op.norm), latent.norm_eps,
                             last + 1 - rate, frequencies);
      }
    });
    const std::span<const kernels::AttentionSlice> entries(found.data(), count);
    if (op.is_index)
      kernels::AppendSide(pool_, target, entries, x, stride);
    else
      kernels::AppendKv(pool_, target, entries, x, nullptr, stride);
    count = 0;
  };
  for (const kernels::AttentionSlice& slice : SlicesOf(op.cache_layer)) {
    const int32_t end = slice.context + slice.num_tokens;
    for (int32_t entry = slice.context / rate; (entry + 1) * rate <= end; ++entry) {
      const int32_t last = (entry + 1) * rate - 1;
      found[count++] = {.first_row = slice.first_row + last - slice.context,
                        .num_tokens = 1,
                        .context = op.is_index ? PlaceOf(cache.layout, rate, entry)
                                               : RowOfEntry(cache.layout, rate, entry),
                        .block_table = slice.block_table};
      if (count == kEntriesAtOnce) store();
    }
  }
  if (count > 0) store();
}

void CpuWalk::operator()(const program::CompressKeys& op) {
  const AttentionSpec& spec = Attention(op.attention);
  const LatentSpec& latent = *spec.latent;
  const CompressedSpec& compressed = *latent.compressed;
  const kernels::CompressRule rule{.rate = compressed.rate,
                                   .overlaps = compressed.overlaps,
                                   .dim = op.is_index ? latent.indexer->head_dim : spec.head_dim,
                                   .bias = Vector(op.bias)};
  const int64_t stride = 2 * rule.width();
  // The states of the indexer's keys follow the states of the entries.
  const int64_t first = op.is_index ? compressed.StateNumbers(spec.head_dim) : 0;
  float* const x = F32At(op.x, stride);
  const StateCache& states = step_.cache->states();
  const StepInput& input = step_.input;
  const auto slices = SlicesOf(op.cache_layer);
  // Divides the work by elements, then by slices, so that every thread has a part of each sequence.
  constexpr int64_t kBlock = 64;
  const int64_t blocks = (rule.dim + kBlock - 1) / kBlock;
  const auto num_slices = std::ssize(slices);
  pool_.ParallelFor(blocks * num_slices, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const auto from = static_cast<int>(task / num_slices * kBlock);
      const int to = std::min(rule.dim, from + static_cast<int>(kBlock));
      const auto index = static_cast<size_t>(task % num_slices);
      const kernels::AttentionSlice& slice = slices[index];
      float* const state = states.tail(op.cache_layer, input.states[index].slot) + first;
      WithSnapshots<kernels::CompressSnapshot>(
          input, index,
          [&](int64_t rows, int32_t slot) {
            return kernels::CompressSnapshot{rows, states.tail(op.cache_layer, slot) + first};
          },
          [&](std::span<const kernels::CompressSnapshot> snapshots, int64_t done, int64_t rows) {
            kernels::CompressRows(rule, x + (slice.first_row + done) * stride, stride, rows,
                                  slice.context + done, from, to, state, snapshots);
          });
    }
  });
  StoreEntries(op, spec, x, stride);
}

void CpuWalk::operator()(const program::ListPositions& op) {
  const AttentionSpec& spec = Attention(op.attention);
  const LatentSpec& latent = *spec.latent;
  const int32_t rate = latent.compressed->rate, window = latent.compressed->window;
  const kernels::KvCacheView cache = CacheOf(op.cache_layer, op.k_scale, op.k_scale);
  const std::span<const kernels::AttentionSlice> slices = SlicesOf(op.cache_layer);
  const bool selects = op.q != program::kNone;
  const int top_k = selects ? latent.indexer->top_k : 0;
  const int32_t* const selected = selects ? I32At(op.selected, top_k) : nullptr;
  if (selects) {
    const IndexerSpec& indexer = *latent.indexer;
    kernels::KvCacheView keys = cache;
    keys.layout = cache.layout.Entries();
    kernels::SelectPositions(pool_, keys, slices,
                             {.q = F32At(op.q, int64_t{indexer.num_heads} * indexer.head_dim),
                              .weights = F32At(op.weights, indexer.num_heads),
                              .num_heads = indexer.num_heads,
                              .rate = rate},
                             top_k, I32At(op.selected, top_k),
                             {At(op.scratch, 0), static_cast<size_t>(op.scratch_bytes)});
  }
  int32_t* const lists = I32At(op.list, op.most);
  int32_t* const counts = I32At(op.counts, 1);
  for (const kernels::AttentionSlice& slice : slices) {
    pool_.ParallelFor(slice.num_tokens, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = slice.first_row + i;
        const auto position = static_cast<int32_t>(slice.context + i);
        const int32_t seen = (position + 1) / rate;
        int32_t* const list = lists + row * op.most;
        int32_t* next = list;
        const bool has_all = !selects || seen <= top_k;
        for (int32_t k = 0; k < (has_all ? seen : top_k); ++k) {
          const int32_t entry = has_all ? k : selected[row * top_k + k];
          *next++ = RowOfEntry(cache.layout, rate, entry);
        }
        for (int32_t seen_position = std::max(0, position + 1 - window); seen_position <= position;
             ++seen_position)
          *next++ = RowOfToken(cache.layout, seen_position);
        counts[row] = static_cast<int32_t>(next - list);
        CHECK_LE(counts[row], op.most);
      }
    });
  }
}

void CpuWalk::operator()(const program::ProjectGroups& op) {
  MultiplyHeads(*program_.experts[static_cast<size_t>(op.matrices)], F32At(op.x, op.groups * op.k),
                op.k, op.groups * op.k, F32At(op.y, op.groups * op.n), op.n, op.groups * op.n);
}

void CpuWalk::operator()(const program::CollapseStreams& op) {
  kernels::CollapseStreams(
      pool_, RuleOf(op.spec, op.width, program_.norm_eps),
      {.matrix = Vector(op.matrix), .base = Vector(op.base), .scale = Vector(op.scale)},
      F32At(op.streams, op.spec.count * op.width), rows_,
      F32At(op.mixes, int64_t{op.spec.count} * (1 + op.spec.count)), F32At(op.out, op.width));
}

void CpuWalk::operator()(const program::ExpandStreams& op) {
  kernels::ExpandStreams(pool_, RuleOf(op.spec, op.width, program_.norm_eps),
                         F32At(op.mixes, int64_t{op.spec.count} * (1 + op.spec.count)),
                         F32At(op.delta, op.width), rows_,
                         F32At(op.streams, op.spec.count * op.width));
}

}  // namespace sluice
