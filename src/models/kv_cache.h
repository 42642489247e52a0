// The memory of the KV cache: one pair of K and V arrays per layer, in blocks with the ids of the
// block pool.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "models/decoder_spec.h"
#include "models/state_cache.h"
#include "tensor/buffer.h"

namespace sluice {

// How layers share blocks. The layers of a group have the same span, and each sequence has one
// block table per group. A block has room for `layers_per_group` layers, so any block can serve any
// group; a group with fewer layers leaves the rest of its blocks unused. Layers of the same span
// may be in several groups.
struct KvGroups {
  // Maximum number of groups. Each running sequence reserves a block per group and has a block
  // table per group.
  static constexpr int64_t kMostGroups = 8;

  struct Place {
    int group = 0;
    // Index of the layer in its group; -1: the layer has no attention and is in no group.
    int slot = 0;
  };
  std::vector<AttentionSpan> spans = {{}};  // span of each group; group 0 keeps all positions
  // One entry per layer. A layer that reads another layer's keys and values has the same entry as
  // that layer.
  std::vector<Place> places;
  int64_t layers_per_group = 0;
  // Size of a layer's keys and values. If `heads` is empty, all layers have the heads of the
  // cache's layout. Otherwise the layout has the size of the largest entry.
  struct Heads {
    int num_kv_heads = 0;
    int head_dim = 0;
  };
  std::vector<Heads> heads = {};  // one entry per layer, or empty

  int64_t num_groups() const { return static_cast<int64_t>(spans.size()); }
  int64_t num_layers() const { return static_cast<int64_t>(places.size()); }

  // Returns one group that contains all layers and keeps all positions.
  static KvGroups Uniform(int64_t num_layers);
  static KvGroups Uniform(const DecoderSpec& spec);
  // Makes groups from the span of each layer, for sequences of up to `max_context` tokens. If all
  // layers have the same span, there is one group. If no layer attends to all positions, the layers
  // with the first layer's span keep all positions anyway, because the prefix cache needs a group
  // that does.
  //
  // The layers of each span are divided into groups of one common size. Only sizes that result in
  // at most kMostGroups groups are considered; if there are more spans than that, each span has one
  // group. Among these sizes, the one is chosen with which a sequence of max_context tokens takes
  // the least memory. Without the limit, the greatest common divisor of the layer counts would
  // leave no memory unused, but 52 and 10 layers would form 31 groups.
  static KvGroups For(std::span<const AttentionSpan> layers, int64_t max_context);
  // Makes groups for the layers of a decoder.
  static KvGroups For(const DecoderSpec& spec, int64_t max_context);

 private:
  // Extends groups that contain only the layers with their own keys and values to all layers.
  static KvGroups OfAllLayers(KvGroups own, const DecoderSpec& spec);
};

// Allocated once for `num_blocks` blocks with ids [0, num_blocks). A block contains K and V of
// block_size tokens for layers_per_group layers. In a layer with fewer or narrower heads than
// `layout`, a part of the block is unused. Ownership: owns the memory of all layers, unless made by
// Wrap; move-only.
class KvCache {
 public:
  // Allocates the cache. kResourceExhausted if the system refuses to provide the memory.
  static Result<KvCache> Allocate(const kernels::KvLayout& layout, const KvGroups& groups,
                                  int64_t num_blocks);
  static Result<KvCache> Allocate(const kernels::KvLayout& layout, int64_t num_layers,
                                  int64_t num_blocks) {
    return Allocate(layout, KvGroups::Uniform(num_layers), num_blocks);
  }
  // Makes a cache over the caller's memory, such as a device's: BytesPerBlock(layout,
  // groups.layers_per_group) * num_blocks bytes, which must outlive the cache.
  static KvCache Wrap(const kernels::KvLayout& layout, const KvGroups& groups, int64_t num_blocks,
                      void* memory);
  // Allocates the states of `num_slots` sequences. kResourceExhausted if the system refuses to
  // provide the memory.
  Status AllocateStates(const StateLayout& layout, int64_t num_slots);
  // Uses the caller's memory for the states, like StateCache::Wrap.
  void WrapStates(const StateLayout& layout, int64_t num_slots, void* memory) {
    states_ = StateCache::Wrap(layout, num_slots, memory);
  }
  // Touches the pages of the first blocks, on all threads, so that the first requests do not wait
  // for page faults. The other pages are mapped on first use: mapping gigabytes in one call takes
  // up to minutes on virtual machines, and a small model may never fill the cache.
  void Warm(ThreadPool& pool) const;

  // Returns the bytes of one block for `num_layers` layers: K and V, or only keys in a latent
  // cache.
  static int64_t BytesPerBlock(const kernels::KvLayout& layout, int64_t num_layers);

  const StateCache& states() const { return states_; }

  // Returns a layer's arrays. Layers of different groups with the same slot share them. A layer
  // without attention has the cache's layout but no array.
  const kernels::KvCacheView& layer(int64_t index) const {
    return layers_[static_cast<size_t>(index)];
  }
  int group(int64_t layer) const { return groups_.places[static_cast<size_t>(layer)].group; }
  int64_t num_groups() const { return groups_.num_groups(); }
  int64_t num_blocks() const { return num_blocks_; }
  // Returns the arrays of all layers, each once: one entry per KvGroups::Place::slot.
  std::span<const kernels::KvCacheView> slots() const { return slots_; }

 private:
  void SetSlots(const kernels::KvLayout& layout, void* memory);

  Buffer memory_;  // empty if the cache wraps the caller's memory
  StateCache states_;
  KvGroups groups_;
  std::vector<kernels::KvCacheView> slots_;
  std::vector<kernels::KvCacheView> layers_;
  int64_t num_blocks_ = 0;
};

}  // namespace sluice
