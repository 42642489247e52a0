// The ranks that share each layer of a stage, and what they gather of each other.
//
// A rank writes its columns of an array to memory of its own, and gathers the array where a sum
// over all columns follows. Alone, it writes the array itself, and nothing is gathered.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "models/decoder_spec.h"
#include "models/shard.h"
#include "parallel/communicator.h"

namespace sluice {

// Thread safety: that of the communicator.
class TensorRanks {
 public:
  // `group`: of the stage's ranks. `spec`: of the whole model. `max_rows`: of a step.
  TensorRanks(Communicator& group, DecoderSpec spec, const RankPlace& place, int64_t max_rows);

  // Heads are those of this layer of the whole model from now on.
  void EnterLayer(int64_t layer) { layer_ = static_cast<size_t>(layer); }

  // Rows of a matrix of `count` rows that this rank holds.
  RowRange RowsOf(int64_t count) const {
    return CutRows(count, place_.tensor_rank, place_.tensor_size);
  }
  // Columns of all q, and of all k, that this rank holds.
  RowRange q_columns() const;
  RowRange k_columns() const;
  // The columns of k that this rank gives to GatherKeys: if several ranks hold a head, the first
  // one gives it.
  RowRange given_k_columns() const;

  // Arrays of `rows` rows, of which `mine` has this rank's columns. Query heads of `attended`:
  void GatherHeads(ThreadPool& pool, ElementType type, int64_t rows, const void* mine, void* all);
  // Columns of the heads of the entered layer's mixer.
  void GatherMixed(ThreadPool& pool, ElementType type, int64_t rows, const void* mine, void* all);
  // F32 queries, and keys, of which `mine` has the given_k_columns().
  void GatherQueries(ThreadPool& pool, int64_t rows, const float* mine, float* all) {
    GatherHeads(pool, ElementType::kF32, rows, mine, all);
  }
  void GatherKeys(ThreadPool& pool, int64_t rows, const float* mine, float* all);
  // Columns that are cut like the rows of a matrix of `count` rows.
  void GatherRowsOf(ThreadPool& pool, int64_t count, ElementType type, int64_t rows,
                    const void* mine, void* all);
  // The same at the first rank alone.
  void GatherLogits(ThreadPool& pool, int64_t rows, const float* mine, float* all);

  // For a table of `count` rows, cut like a matrix's: the places, in this rank's part, of those
  // `tokens` that it holds, in their order; valid until the next call.
  std::span<const int32_t> OwnTokens(std::span<const int32_t> tokens, int64_t count);
  // The table's rows [tokens.size(), width] F32 of `tokens`, of which `mine` has those of
  // OwnTokens. `scratch`: as large as `all`.
  void GatherEmbeddings(ThreadPool& pool, std::span<const int32_t> tokens, int64_t count,
                        int64_t width, const float* mine, float* scratch, float* all);

 private:
  const AttentionSpec& attention() const { return spec_.layers[layer_].attention; }  // of all ranks
  void FillWidths(int64_t count, int64_t bytes);

  Communicator& group_;
  const DecoderSpec spec_;
  RankPlace place_;
  size_t layer_ = 0;
  std::vector<int64_t> widths_;   // of a gather, bytes by rank
  std::vector<int64_t> offsets_;  // of GatherEmbeddings
  std::vector<int32_t> own_tokens_;
};

}  // namespace sluice
