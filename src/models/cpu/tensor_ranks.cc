#include "models/cpu/tensor_ranks.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace sluice {
namespace {

RowRange ColumnsOf(const RowRange& heads, int64_t head_dim) {
  return {heads.begin * head_dim, heads.end * head_dim};
}

}  // namespace

TensorRanks::TensorRanks(Communicator& group, DecoderSpec spec, const RankPlace& place,
                         int64_t max_rows)
    : group_(group),
      spec_(std::move(spec)),
      place_(place),
      widths_(static_cast<size_t>(place.tensor_size)),
      offsets_(static_cast<size_t>(place.tensor_size)) {
  own_tokens_.reserve(static_cast<size_t>(max_rows));
}

RowRange TensorRanks::q_columns() const {
  return ColumnsOf(CutHeads(attention(), place_.tensor_rank, place_.tensor_size).q,
                   attention().head_dim);
}

RowRange TensorRanks::k_columns() const {
  return ColumnsOf(CutHeads(attention(), place_.tensor_rank, place_.tensor_size).kv,
                   attention().head_dim);
}

RowRange TensorRanks::given_k_columns() const {
  return ColumnsOf(FirstHeldKeys(attention(), place_.tensor_rank, place_.tensor_size),
                   attention().head_dim);
}

void TensorRanks::FillWidths(int64_t count, int64_t bytes) {
  for (int rank = 0; rank < place_.tensor_size; ++rank) {
    widths_[static_cast<size_t>(rank)] = CutRows(count, rank, place_.tensor_size).size() * bytes;
  }
}

void TensorRanks::GatherHeads(ThreadPool& pool, ElementType type, int64_t rows, const void* mine,
                              void* all) {
  const int64_t head_bytes = attention().output_dim() * BitsPerElement(type) / 8;
  for (int rank = 0; rank < place_.tensor_size; ++rank) {
    widths_[static_cast<size_t>(rank)] =
        CutHeads(attention(), rank, place_.tensor_size).q.size() * head_bytes;
  }
  group_.Gather(pool, widths_, rows, mine, all);
}

void TensorRanks::GatherMixed(ThreadPool& pool, ElementType type, int64_t rows, const void* mine,
                              void* all) {
  const MixerSpec& mixer = *spec_.layers[layer_].mixer;
  for (int rank = 0; rank < place_.tensor_size; ++rank) {
    widths_[static_cast<size_t>(rank)] = CutMixer(mixer, rank, place_.tensor_size).heads.size() *
                                         mixer.head_dim * BitsPerElement(type) / 8;
  }
  group_.Gather(pool, widths_, rows, mine, all);
}

void TensorRanks::GatherKeys(ThreadPool& pool, int64_t rows, const float* mine, float* all) {
  for (int rank = 0; rank < place_.tensor_size; ++rank) {
    widths_[static_cast<size_t>(rank)] =
        FirstHeldKeys(attention(), rank, place_.tensor_size).size() * attention().head_dim *
        int64_t{sizeof(float)};
  }
  group_.Gather(pool, widths_, rows, mine, all);
}

void TensorRanks::GatherRowsOf(ThreadPool& pool, int64_t count, ElementType type, int64_t rows,
                               const void* mine, void* all) {
  FillWidths(count, BitsPerElement(type) / 8);
  group_.Gather(pool, widths_, rows, mine, all);
}

void TensorRanks::GatherLogits(ThreadPool& pool, int64_t rows, const float* mine, float* all) {
  FillWidths(spec_.vocab_size, sizeof(float));
  group_.Gather(pool, widths_, rows, mine, all, /*root=*/0);
}

std::span<const int32_t> TensorRanks::OwnTokens(std::span<const int32_t> tokens, int64_t count) {
  const RowRange rows = RowsOf(count);
  own_tokens_.clear();
  for (const int32_t token : tokens) {
    if (token >= rows.begin && token < rows.end)
      own_tokens_.push_back(token - static_cast<int32_t>(rows.begin));
  }
  return own_tokens_;
}

void TensorRanks::GatherEmbeddings(ThreadPool& pool, std::span<const int32_t> tokens, int64_t count,
                                   int64_t width, const float* mine, float* scratch, float* all) {
  const auto row_bytes = width * static_cast<int64_t>(sizeof(float));
  const auto rank_of = [&](int32_t token) {
    size_t rank = 0;
    while (token >= CutRows(count, static_cast<int>(rank), place_.tensor_size).end) ++rank;
    return rank;
  };
  std::fill(widths_.begin(), widths_.end(), 0);
  for (const int32_t token : tokens) widths_[rank_of(token)] += row_bytes;
  // Gathers everything as a single row, because the sizes differ between ranks.
  group_.Gather(pool, widths_, 1, mine, scratch);
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
