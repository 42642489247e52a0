// Scratch memory of the attention operator; private to it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/integer.h"
#include "kernels/attention.h"
#include "kernels/attention_layout.h"
#include "kernels/kernel_table.h"

namespace sluice::kernels {

// Maximum number of query rows (tokens x heads of the group) that share one pass over the cache.
constexpr int kMaxTileRows = 128;

// Returns whether the kernels read the cache without conversion.
inline bool IsReadInPlace(const KvLayout& layout) {
  return HasPanels(layout) &&
         (layout.type == ElementType::kBF16 || layout.type == ElementType::kF32);
}

// The scratch of one thread: queries, scores, a chunk's result, the running result, and panels for
// caches that are not read in place.
struct ThreadScratch {
  float* q;          // [kMaxTileRows, head_dim]
  float* scores;     // [kMaxTileRows, kAttentionChunk]
  float* chunk_out;  // [kMaxTileRows, value_dim]
  float* out;        // [kMaxTileRows, value_dim]
  std::byte* k_panels;
  std::byte* v_panels;

  static int64_t TileBytes(int dim) { return RoundUp(int64_t{kMaxTileRows} * dim * 4, 64); }
  static int64_t Bytes(const KvLayout& layout) {
    const int64_t panels = IsReadInPlace(layout) ? 0 : layout.head_dim + layout.value_dim();
    return TileBytes(layout.head_dim) + 2 * TileBytes(layout.value_dim()) +
           int64_t{kMaxTileRows} * kAttentionChunk * 4 + int64_t{kAttentionChunk} * panels * 4;
  }

  static ThreadScratch At(std::byte* memory, const KvLayout& layout) {
    ThreadScratch scratch;
    const auto take = [&](int64_t bytes) {
      std::byte* taken = memory;
      memory += bytes;
      return taken;
    };
    scratch.q = reinterpret_cast<float*>(take(TileBytes(layout.head_dim)));
    scratch.scores = reinterpret_cast<float*>(take(int64_t{kMaxTileRows} * kAttentionChunk * 4));
    scratch.chunk_out = reinterpret_cast<float*>(take(TileBytes(layout.value_dim())));
    scratch.out = reinterpret_cast<float*>(take(TileBytes(layout.value_dim())));
    scratch.k_panels = take(int64_t{kAttentionChunk} * layout.head_dim * 4);
    scratch.v_panels = memory;
    return scratch;
  }
};

}  // namespace sluice::kernels
