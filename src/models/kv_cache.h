// The memory of the KV cache: one pair of K and V arrays a layer, in blocks named by the cache's
// ids.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "kernels/attention.h"
#include "tensor/buffer.h"

namespace sluice {

// Allocated once for `num_blocks` blocks of every layer; block ids are [0, num_blocks).
// Ownership: owns the memory of all layers; move-only.
class KvCache {
 public:
  // kResourceExhausted if the machine refuses.
  static Result<KvCache> Allocate(const kernels::KvLayout& layout, int64_t num_layers,
                                  int64_t num_blocks);
  // Bytes that one block takes over all layers, K and V.
  static int64_t BytesPerBlock(const kernels::KvLayout& layout, int64_t num_layers);

  const kernels::KvCacheView& layer(int64_t index) const {
    return layers_[static_cast<size_t>(index)];
  }
  int64_t num_blocks() const { return num_blocks_; }

 private:
  Buffer memory_;
  std::vector<kernels::KvCacheView> layers_;
  int64_t num_blocks_ = 0;
};

}  // namespace sluice
