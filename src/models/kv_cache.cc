#include "models/kv_cache.h"

#include "base/check.h"

namespace sluice {

int64_t KvCache::BytesPerBlock(const kernels::KvLayout& layout, int64_t num_layers) {
  return 2 * num_layers * layout.BlockElements() * BitsPerElement(layout.type) / 8;
}

Result<KvCache> KvCache::Allocate(const kernels::KvLayout& layout, int64_t num_layers,
                                  int64_t num_blocks) {
  CHECK_GT(num_blocks, 0);
  int64_t total_bytes = 0;
  if (__builtin_mul_overflow(BytesPerBlock(layout, num_layers), num_blocks, &total_bytes)) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("a KV cache of {} blocks is larger than any memory", num_blocks));
  }
  KvCache cache;
  cache.num_blocks_ = num_blocks;
  ASSIGN_OR_RETURN(cache.memory_,
                   Buffer::Allocate(static_cast<size_t>(total_bytes), "the KV cache"));
  const int64_t half_bytes = total_bytes / num_layers / 2;  // K or V of one layer
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    std::byte* k = cache.memory_.data() + 2 * layer * half_bytes;
    cache.layers_.push_back({layout, k, k + half_bytes});
  }
  return cache;
}

}  // namespace sluice
