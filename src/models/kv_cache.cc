#include "models/kv_cache.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace sluice {

KvGroups KvGroups::Uniform(int64_t num_layers) {
  KvGroups groups;
  for (int64_t layer = 0; layer < num_layers; ++layer)
    groups.places.push_back({0, static_cast<int>(layer)});
  return groups;
}

KvGroups KvGroups::For(std::span<const kernels::AttentionSpan> layers, int64_t max_context) {
  // A limit beyond the longest sequence is none.
  const auto effective = [max_context](kernels::AttentionSpan span) {
    if (span.chunk >= max_context) span.chunk = 0;
    if (span.window >= max_context) span.window = 0;
    return span;
  };
  struct Kind {
    kernels::AttentionSpan span;
    std::vector<size_t> layers;
  };
  std::vector<Kind> kinds;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const kernels::AttentionSpan span = effective(layers[layer]);
    auto kind = std::find_if(kinds.begin(), kinds.end(),
                             [&](const Kind& other) { return other.span == span; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {span, {}});
    kind->layers.push_back(layer);
  }
  if (kinds.size() <= 1) return Uniform(static_cast<int64_t>(layers.size()));
  std::stable_partition(kinds.begin(), kinds.end(),
                        [](const Kind& kind) { return kind.span == kernels::AttentionSpan(); });
  kinds.front().span = {};

  size_t layers_per_group = 0;
  for (const Kind& kind : kinds) layers_per_group = std::gcd(layers_per_group, kind.layers.size());
  KvGroups groups;
  groups.spans.clear();
  groups.places.resize(layers.size());
  for (const Kind& kind : kinds) {
    for (size_t i = 0; i < kind.layers.size(); ++i) {
      if (i % layers_per_group == 0) groups.spans.push_back(kind.span);
      groups.places[kind.layers[i]] = {static_cast<int>(groups.spans.size()) - 1,
                                       static_cast<int>(i % layers_per_group)};
    }
  }
  return groups;
}

int64_t KvCache::BytesPerBlock(const kernels::KvLayout& layout, int64_t num_layers) {
  return 2 * num_layers * layout.BlockElements() * BitsPerElement(layout.type) / 8;
}

Result<KvCache> KvCache::Allocate(const kernels::KvLayout& layout, const KvGroups& groups,
                                  int64_t num_blocks) {
  CHECK_GT(num_blocks, 0);
  const int64_t num_slots = groups.layers_per_group();
  int64_t total_bytes = 0;
  if (__builtin_mul_overflow(BytesPerBlock(layout, num_slots), num_blocks, &total_bytes)) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("a KV cache of {} blocks is larger than any memory", num_blocks));
  }
  KvCache cache;
  cache.groups_ = groups;
  cache.num_blocks_ = num_blocks;
  ASSIGN_OR_RETURN(cache.memory_,
                   Buffer::Allocate(static_cast<size_t>(total_bytes), "the KV cache"));
  cache.SetSlots(layout, cache.memory_.data());
  return cache;
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
  const int64_t half_bytes = num_blocks_ * BytesPerBlock(layout, 1) / 2;  // K or V of one slot
  for (int64_t slot = 0; slot < groups_.layers_per_group(); ++slot) {
    std::byte* k = static_cast<std::byte*>(memory) + 2 * slot * half_bytes;
    slots_.push_back({layout, k, k + half_bytes});
  }
}

}  // namespace sluice
