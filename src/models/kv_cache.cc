#include "models/kv_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

// Layers with the same span.
struct Kind {
  AttentionSpan span;
  std::vector<size_t> layers;

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  int64_t GroupsOf(int64_t size) const { return (num_layers() + size - 1) / size; }
  // Returns the approximate number of tokens per layer that a sequence of `max_context` tokens
  // keeps.
  int64_t TokensKept(int64_t max_context) const {
    if (span.sees_all()) return max_context;
    if (span.chunk == 0 || span.window == 0) return std::max(span.chunk, span.window);
    return std::min(span.chunk, span.window);
  }
};

// Returns the kinds of layers, ordered by their first layer. A span of `max_context` positions or
// more counts as unlimited.
std::vector<Kind> KindsOf(std::span<const AttentionSpan> layers, int64_t max_context) {
  std::vector<Kind> kinds;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    AttentionSpan span = layers[layer];
    if (span.chunk >= max_context) span.chunk = 0;
    if (span.window >= max_context) span.window = 0;
    auto kind = std::find_if(kinds.begin(), kinds.end(),
                             [&](const Kind& other) { return other.span == span; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {span, {}});
    kind->layers.push_back(layer);
  }
  return kinds;
}

// Returns the group size that KvGroups::For describes.
int64_t BestGroupSize(const std::vector<Kind>& kinds, int64_t max_context) {
  const auto most_groups = std::max(KvGroups::kMostGroups, static_cast<int64_t>(kinds.size()));
  int64_t largest = 0;
  for (const Kind& kind : kinds) largest = std::max(largest, kind.num_layers());
  int64_t best = largest, least_kept = std::numeric_limits<int64_t>::max();
  // Iterates from the largest size down, so that among equally good sizes, the one with the fewest
  // groups is chosen.
  for (int64_t size = largest; size > 0; --size) {
    int64_t groups = 0, kept = 0;  // kept: number of tokens times layers, including unused slots
    for (const Kind& kind : kinds) {
      groups += kind.GroupsOf(size);
      kept += kind.GroupsOf(size) * size * kind.TokensKept(max_context);
    }
    if (groups > most_groups) break;  // smaller sizes do not need fewer groups
    if (kept >= least_kept) continue;
    least_kept = kept;
    best = size;
  }
  return best;
}

}  // namespace

KvGroups KvGroups::Uniform(int64_t num_layers) {
  KvGroups groups;
  for (int64_t layer = 0; layer < num_layers; ++layer)
    groups.places.push_back({0, static_cast<int>(layer)});
  groups.layers_per_group = num_layers;
  return groups;
}

KvGroups KvGroups::For(std::span<const AttentionSpan> layers, int64_t max_context) {
  std::vector<Kind> kinds = KindsOf(layers, max_context);
  if (kinds.size() <= 1) return Uniform(static_cast<int64_t>(layers.size()));
  std::stable_partition(kinds.begin(), kinds.end(),
                        [](const Kind& kind) { return kind.span.sees_all(); });
  kinds.front().span = {};

  KvGroups groups;
  groups.spans.clear();
  groups.places.resize(layers.size());
  groups.layers_per_group = BestGroupSize(kinds, max_context);
  const auto size = static_cast<size_t>(groups.layers_per_group);
  for (const Kind& kind : kinds) {
    for (size_t i = 0; i < kind.layers.size(); ++i) {
      if (i % size == 0) groups.spans.push_back(kind.span);
      groups.places[kind.layers[i]] = {static_cast<int>(groups.spans.size()) - 1,
                                       static_cast<int>(i % size)};
    }
  }
  return groups;
}

KvGroups KvGroups::OfAllLayers(KvGroups own, const DecoderSpec& spec) {
  KvGroups groups = std::move(own);
  const std::vector<Place> places = std::exchange(groups.places, {});
  size_t next = 0;
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& attention = layer.attention;
    if (!attention.exists()) {
      groups.places.push_back({.group = 0, .slot = -1});
      continue;
    }
    groups.places.push_back(attention.has_own_kv()
                                ? places[next++]
                                : groups.places[static_cast<size_t>(attention.kv_layer)]);
  }
  if (spec.HasUniformHeads()) return groups;
  for (const LayerSpec& layer : spec.layers)
    groups.heads.push_back({layer.attention.num_kv_heads, layer.attention.head_dim});
  return groups;
}

KvGroups KvGroups::Uniform(const DecoderSpec& spec) {
  return OfAllLayers(Uniform(spec.NumKvLayers()), spec);
}

KvGroups KvGroups::For(const DecoderSpec& spec, int64_t max_context) {
  // All layers share one group, which also contains snapshots of states. Layers with a window then
  // keep all positions, but attend only to those in the window.
  if (spec.KeepsStates()) return Uniform(spec);
  std::vector<AttentionSpan> spans;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.attention.has_own_kv()) spans.push_back(layer.attention.span);
  }
  return OfAllLayers(For(spans, max_context), spec);
}

void KvCache::Warm(ThreadPool& pool) const {
  constexpr int64_t kWarmBytes = int64_t{128} << 20;
  constexpr int64_t kPageBytes = 4096;
  const auto num_slots = static_cast<int64_t>(slots_.size());
  const auto warm = [&](void* array, int64_t elements, ElementType type) {
    const int64_t all = num_blocks_ * elements * BitsPerElement(type) / 8;
    const int64_t bytes = std::min(all, kWarmBytes / (2 * num_slots));
    auto* const memory = static_cast<volatile char*>(array);
    pool.ParallelFor(bytes, int64_t{2} << 20, [memory](int64_t begin, int64_t end) {
      for (int64_t byte = begin; byte < end; byte += kPageBytes) memory[byte] = 0;
    });
  };
  for (const kernels::KvCacheView& view : slots_) {
    warm(view.k, view.layout.BlockElements(), view.layout.type);
    warm(view.v, view.layout.ValueBlockElements(), view.layout.type);
  }
}

int64_t KvCache::BytesPerBlock(const kernels::KvLayout& layout, int64_t num_layers) {
  return num_layers * (layout.BlockElements() + layout.ValueBlockElements()) *
         BitsPerElement(layout.type) / 8;
}

Result<KvCache> KvCache::Allocate(const kernels::KvLayout& layout, const KvGroups& groups,
                                  int64_t num_blocks) {
  CHECK_GT(num_blocks, 0);
  const int64_t num_slots = groups.layers_per_group;
  int64_t total_bytes = 0;
  if (__builtin_mul_overflow(BytesPerBlock(layout, num_slots), num_blocks, &total_bytes)) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("the size of a KV cache of {} blocks overflows 64 bits", num_blocks));
  }
  KvCache cache;
  cache.groups_ = groups;
  cache.num_blocks_ = num_blocks;
  ASSIGN_OR_RETURN(cache.memory_,
                   Buffer::Allocate(static_cast<size_t>(total_bytes), "the KV cache"));
  cache.SetSlots(layout, cache.memory_.data());
  return cache;
}

Status KvCache::AllocateStates(const StateLayout& layout, int64_t num_slots) {
  ASSIGN_OR_RETURN(states_, StateCache::Allocate(layout, num_slots));
  return {};
}

KvCache KvCache::Wrap(const kernels::KvLayout& layout, const KvGroups& groups, int64_t num_blocks,
                      void* memory) {
  CHECK_GT(num_blocks, 0);
  KvCache cache;
  cache.groups_ = groups;
  cache.num_blocks_ = num_blocks;
  cache.SetSlots(layout, memory);
  return cache;
}

void KvCache::SetSlots(const kernels::KvLayout& layout, void* memory) {
  const int64_t slot_bytes = num_blocks_ * BytesPerBlock(layout, 1);
  const int64_t k_bytes = num_blocks_ * layout.BlockElements() * BitsPerElement(layout.type) / 8;
  for (int64_t slot = 0; slot < groups_.layers_per_group; ++slot) {
    std::byte* k = static_cast<std::byte*>(memory) + slot * slot_bytes;
    slots_.push_back({layout, k, k + k_bytes});
  }
  for (size_t layer = 0; layer < groups_.places.size(); ++layer) {
    if (groups_.places[layer].slot < 0) {
      layers_.push_back({layout, nullptr, nullptr});
      continue;
    }
    kernels::KvCacheView view = slots_[static_cast<size_t>(groups_.places[layer].slot)];
    if (!groups_.heads.empty()) {
      view.layout.num_kv_heads = groups_.heads[layer].num_kv_heads;
      view.layout.head_dim = groups_.heads[layer].head_dim;
      view.layout.block_stride = layout.BlockStride();
      CHECK_LE(view.layout.BlockElements(), view.layout.block_stride);
    }
    layers_.push_back(view);
  }
}

}  // namespace sluice
