// What the indexers of sparse attention share (select_positions.h, select_blocks.h): panels of
// their keys, batches of rows, and the choice of the best.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/integer.h"
#include "kernels/attention.h"
#include "kernels/kernel_table.h"
#include "tensor/bfloat16.h"
#include "tensor/float16.h"
#include "tensor/float8.h"

namespace sluice::kernels {

// Maximum number of rows whose scores are in memory at once.
constexpr int64_t kMostIndexRows = 64;

// Returns the bytes of a panel of 16 keys, F32 [layout.side_dim][16].
inline int64_t IndexPanelBytes(const KvLayout& layout) {
  return RoundUp(int64_t{kAttentionPanelPositions} * layout.side_dim * 4, 64);
}

// Returns the first place in scratch memory that is aligned to 64 bytes.
inline std::byte* AlignedScratch(std::span<std::byte> scratch) {
  return scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
}

// Calls body(T{}) with the type T of the cache's elements. REQUIRES: CheckKvType().
template <typename Body>
void ForElementType(const KvLayout& layout, const Body& body) {
  switch (layout.type) {
    case ElementType::kBF16: return body(BFloat16{});
    case ElementType::kF16: return body(Float16{});
    case ElementType::kF8E4M3: return body(Float8E4M3{});
    default: return body(float{});
  }
}

// Reads the keys of positions [first, end), at most 16, into a panel; the last one fills the rest.
// key_at(block, row) returns a function that returns element d of the key in this row of the block.
template <typename KeyAt>
void ReadIndexPanel(const KvLayout& layout, const AttentionSlice& slice, int first, int end,
                    float* panel, const KeyAt& key_at) {
  for (int p = 0; p < kAttentionPanelPositions; ++p) {
    const int position = std::min(first + p, end - 1);
    const auto key =
        key_at(slice.block_table[position / layout.block_size], position % layout.block_size);
    for (int d = 0; d < layout.side_dim; ++d) {
      const auto element = key(d);
      float& to = panel[d * kAttentionPanelPositions + p];
      if constexpr (std::is_same_v<decltype(element), const float>)
        to = element;
      else
        to = ToFloat(element);
    }
  }
}

// A row for which an indexer chooses.
struct IndexRow {
  const AttentionSlice* slice = nullptr;
  int64_t row = 0;
  int32_t seen = 0;  // number of positions
};

// Calls run(rows) for batches of at most `most` rows of the slices. seen(tokens): number of
// positions that a row sees after `tokens` tokens, or 0 if nothing is to be chosen for the row.
// REQUIRES: most is from 1 to kMostIndexRows.
template <typename Seen, typename Run>
void ForIndexRows(std::span<const AttentionSlice> slices, int64_t most, const Seen& seen,
                  const Run& run) {
  std::array<IndexRow, kMostIndexRows> rows;
  size_t count = 0;
  const auto run_rows = [&] {
    run(std::span<const IndexRow>(rows.data(), count));
    count = 0;
  };
  for (const AttentionSlice& slice : slices) {
    for (int32_t i = 0; i < slice.num_tokens; ++i) {
      const int32_t positions = seen(slice.context + i + 1);
      if (positions == 0) continue;
      rows[count++] = {&slice, slice.first_row + i, positions};
      if (static_cast<int64_t>(count) == most) run_rows();
    }
  }
  if (count > 0) run_rows();
}

// Writes the `top_k` best of the numbers [0, count) to `chosen`, ascending. is_better(a, b) is a
// strict total order. `order`: scratch [count].
template <typename IsBetter>
void ChooseBest(int32_t count, int top_k, int32_t* order, int32_t* chosen,
                const IsBetter& is_better) {
  for (int32_t i = 0; i < count; ++i) order[i] = i;
  std::nth_element(order, order + top_k - 1, order + count, is_better);
  std::copy_n(order, top_k, chosen);
  std::sort(chosen, chosen + top_k);
}

}  // namespace sluice::kernels
