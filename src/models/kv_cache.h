// The memory of the KV cache: one pair of K and V arrays a layer, in blocks named by the cache's
// ids.
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

// How the layers share blocks. The layers of a group have the same span, and each sequence has one
// block table for them. A block holds `layers_per_group` layers, so that any block may serve any
// group; a group with fewer layers leaves the rest of its blocks unused. Layers of the same span
// may be in several groups.
struct KvGroups {
  // Every running sequence reserves a block a group, and each group has a block table.
  static constexpr int64_t kMostGroups = 8;

  struct Place {
    int group = 0;
    int slot = 0;  // which of its group's layers it is; -1: it has no attention, and no group
  };
  std::vector<AttentionSpan> spans = {{}};  // by group; group 0 keeps all positions
  // By layer. Layers that attend to the keys and values of another have its place.
  std::vector<Place> places;
  int64_t layers_per_group = 0;
  // The heads of a layer's keys and values; empty: all layers have those of the cache's layout,
  // which elsewhere are the largest.
  struct Heads {
    int num_kv_heads = 0;
    int head_dim = 0;
  };
  std::vector<Heads> heads = {};  // by layer

  int64_t num_groups() const { return static_cast<int64_t>(spans.size()); }
  int64_t num_layers() const { return static_cast<int64_t>(places.size()); }

  // One group of all layers, which keeps all positions.
  static KvGroups Uniform(int64_t num_layers);
  static KvGroups Uniform(const DecoderSpec& spec);
  // From the span of each layer, for sequences of up to `max_context` tokens. Where all layers have
  // the same span there is one group. Where no layer sees everything, those with the first layer's
  // span keep all positions: the prefix cache needs a group that does.
  //
  // The layers of each span are cut into groups of a common size, the one with which a sequence of
  // max_context tokens takes the least memory among those that make at most kMostGroups groups (one
  // a span, where there are more spans). Without that bound nothing would be unused: the greatest
  // common divisor of the layer counts always fits, but 52 and 10 layers would make 31 groups.
  static KvGroups For(std::span<const AttentionSpan> layers, int64_t max_context);
  // The groups of the decoder's layers.
  static KvGroups For(const DecoderSpec& spec, int64_t max_context);

 private:
  // From groups of those layers that have keys and values of their own to groups of all.
  static KvGroups OfAllLayers(KvGroups own, const DecoderSpec& spec);
};

// Allocated once for `num_blocks` blocks, each of the K and V of block_size tokens in as many
// layers as a group has; block ids are [0, num_blocks). Of a layer with fewer or narrower heads
// than `layout` has, a part of each block stays unused. Ownership: owns the memory of all layers,
// unless it wraps another's; move-only.
class KvCache {
 public:
  // kResourceExhausted if the machine refuses.
  static Result<KvCache> Allocate(const kernels::KvLayout& layout, const KvGroups& groups,
                                  int64_t num_blocks);
  static Result<KvCache> Allocate(const kernels::KvLayout& layout, int64_t num_layers,
                                  int64_t num_blocks) {
    return Allocate(layout, KvGroups::Uniform(num_layers), num_blocks);
  }
  // A cache over memory that the caller holds, of BytesPerBlock(layout, groups.layers_per_group)
  // * num_blocks bytes: on a device. It must outlive the cache.
  static KvCache Wrap(const kernels::KvLayout& layout, const KvGroups& groups, int64_t num_blocks,
                      void* memory);
  // Makes room for the states of `num_slots` sequences; kResourceExhausted if the machine refuses.
  Status AllocateStates(const StateLayout& layout, int64_t num_slots);
  // Touches the pages of the first blocks, on all threads, so that the first requests do not wait
  // for page faults. The other pages are reserved and mapped when the cache first grows into them:
  // mapping gigabytes at once took up to minutes on virtual machines, for a cache that a small
  // model may never fill.
  void Warm(ThreadPool& pool) const;

  // Bytes that one block takes over `num_layers` layers, K and V: of a latent cache, keys alone.
  static int64_t BytesPerBlock(const kernels::KvLayout& layout, int64_t num_layers);

  const StateCache& states() const { return states_; }

  // Layers of different groups at the same slot share an array. A layer without attention has the
  // cache's layout, and no array.
  const kernels::KvCacheView& layer(int64_t index) const {
    return layers_[static_cast<size_t>(index)];
  }
  int group(int64_t layer) const { return groups_.places[static_cast<size_t>(layer)].group; }
  int64_t num_groups() const { return groups_.num_groups(); }
  int64_t num_blocks() const { return num_blocks_; }
  // The arrays themselves.
  std::span<const kernels::KvCacheView> slots() const { return slots_; }

 private:
  void SetSlots(const kernels::KvLayout& layout, void* memory);

  Buffer memory_;  // empty where it is another's
  StateCache states_;
  KvGroups groups_;
  std::vector<kernels::KvCacheView> slots_;
  std::vector<kernels::KvCacheView> layers_;
  int64_t num_blocks_ = 0;
};

}  // namespace sluice
