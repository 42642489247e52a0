#include "models/layers/tensor_ranks.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace sluice {

TensorRanks::TensorRanks(Communicator* group, const DecoderSpec& spec, const RankPlace& place)
    : group_(group),
      place_(place),
      hidden_size_(spec.hidden_size),
      vocab_size_(spec.vocab_size),
      widths_(static_cast<size_t>(place.tensor_size)),
      offsets_(static_cast<size_t>(place.tensor_size)) {}

void TensorRanks::FillWidths(int64_t count, int64_t bytes) {
  for (int rank = 0; rank < place_.tensor_size; ++rank) {
    widths_[static_cast<size_t>(rank)] = CutRows(count, rank, place_.tensor_size).size() * bytes;
  }
}

void TensorRanks::GatherHeads(ThreadPool& pool, const AttentionSpec& whole, ElementType type,
                              int64_t rows, const void* mine, void* all) {
  const int64_t head_bytes = whole.head_dim * BitsPerElement(type) / 8;
  for (int rank = 0; rank < place_.tensor_size; ++rank) {
    widths_[static_cast<size_t>(rank)] =
        CutHeads(whole, rank, place_.tensor_size).q.size() * head_bytes;
  }
  group_->Gather(pool, widths_, rows, mine, all);
}

void TensorRanks::GatherRowsOf(ThreadPool& pool, int64_t count, ElementType type, int64_t rows,
                               const void* mine, void* all) {
  FillWidths(count, BitsPerElement(type) / 8);
  group_->Gather(pool, widths_, rows, mine, all);
}

void TensorRanks::GatherLogits(ThreadPool& pool, int64_t rows, const float* mine, float* all) {
  FillWidths(vocab_size_, sizeof(float));
  group_->Gather(pool, widths_, rows, mine, all, /*root=*/0);
}

void TensorRanks::GatherEmbeddings(ThreadPool& pool, std::span<const int32_t> tokens,
                                   const float* mine, float* scratch, float* all) {
  const auto row_bytes = hidden_size_ * static_cast<int64_t>(sizeof(float));
  const auto rank_of = [&](int32_t token) {
    size_t rank = 0;
    while (token >= CutRows(vocab_size_, static_cast<int>(rank), place_.tensor_size).end) ++rank;
    return rank;
  };
  std::fill(widths_.begin(), widths_.end(), 0);
  for (const int32_t token : tokens) widths_[rank_of(token)] += row_bytes;
  // One row of all ranks' rows.
  group_->Gather(pool, widths_, 1, mine, scratch);
  std::exclusive_scan(widths_.begin(), widths_.end(), offsets_.begin(), int64_t{0});
  auto* to = reinterpret_cast<std::byte*>(all);
  for (const int32_t token : tokens) {
    int64_t& offset = offsets_[rank_of(token)];
    std::memcpy(to, reinterpret_cast<const std::byte*>(scratch) + offset,
                static_cast<size_t>(row_bytes));
    offset += row_bytes;
    to += row_bytes;
  }
}

}  // namespace sluice
