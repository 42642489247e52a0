// The ranks that share each layer of a stage, and what they gather of each other.
//
// A rank writes its columns of an array to memory of its own, and gathers the array where a sum
// over all columns follows. Alone, it writes the array itself, and nothing is gathered.
#pragma once

#include <cstdint>
#include <vector>

#include "models/layers/step.h"
#include "models/shard.h"
#include "parallel/communicator.h"

namespace sluice {

// Thread safety: that of the communicator.
class TensorRanks {
 public:
  // `group`: of the stage's ranks; null where there is one.
  TensorRanks(Communicator* group, const DecoderSpec& spec, const RankPlace& place);

  bool is_alone() const { return group_ == nullptr; }

  // Rows of the hidden size, and of the vocabulary, that this rank holds.
  RowRange hidden_rows() const { return RowsOf(hidden_size_); }
  RowRange words() const { return RowsOf(vocab_size_); }

  // Arrays of `rows` rows, of which `mine` has this rank's columns. Query heads of `attended`:
  void GatherHeads(ThreadPool& pool, const AttentionSpec& whole, ElementType type, int64_t rows,
                   const void* mine, void* all);
  // Columns that are cut like the rows of a matrix of `count` rows.
  void GatherRowsOf(ThreadPool& pool, int64_t count, ElementType type, int64_t rows,
                    const void* mine, void* all);
  // The same at the first rank alone.
  void GatherLogits(ThreadPool& pool, int64_t rows, const float* mine, float* all);
  // The embeddings of `tokens`, of which `mine` has those of this rank's words, in their order.
  // `scratch`: as large as `all`, [tokens.size(), hidden] F32.
  void GatherEmbeddings(ThreadPool& pool, std::span<const int32_t> tokens, const float* mine,
                        float* scratch, float* all);

 private:
  RowRange RowsOf(int64_t count) const {
    return CutRows(count, place_.tensor_rank, place_.tensor_size);
  }
  void FillWidths(int64_t count, int64_t bytes);

  Communicator* group_;
  RankPlace place_;
  int64_t hidden_size_;
  int64_t vocab_size_;
  std::vector<int64_t> widths_;   // of a gather, bytes by rank
  std::vector<int64_t> offsets_;  // of GatherEmbeddings
};

}  // namespace sluice
