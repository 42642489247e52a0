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
  // `group`: of the stage's ranks; null where there is one. `spec`: of the whole model, which
  // outlives this. `max_rows`: of a step.
  TensorRanks(Communicator* group, const DecoderSpec& spec, const RankPlace& place,
              int64_t max_rows);

  bool is_alone() const { return group_ == nullptr; }
  // Heads are those of this layer of the whole model from now on.
  void EnterLayer(int64_t layer) { layer_ = static_cast<size_t>(layer); }

  // Rows of a matrix of `count` rows that this rank holds.
  RowRange RowsOf(int64_t count) const {
    return CutRows(count, place_.tensor_rank, place_.tensor_size);
  }
  RowRange words() const { return RowsOf(spec_.vocab_size); }
  // Columns of all q, and of all k, that this rank holds.
  RowRange q_columns() const;
  RowRange k_columns() const;
  // Of the latter, those that it gives to GatherKeys: a head that several hold is given by the
  // first.
  RowRange given_k_columns() const;

  // Arrays of `rows` rows, of which `mine` has this rank's columns. Query heads of `attended`:
  void GatherHeads(ThreadPool& pool, ElementType type, int64_t rows, const void* mine, void* all);
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
  // The results of a sub-layer, all columns from those of the ranks' `own_delta`.
  void GatherHidden(const Step& step, int64_t rows, float* all) {
    GatherRowsOf(step.pool, spec_.hidden_size, ElementType::kF32, rows, step.workspace.own_delta(),
                 all);
  }

  // Of a table of `count` rows, cut like those of a matrix: the places in this rank's part of those
  // of `tokens` that it holds, in their order; valid until the next call.
  std::span<const int32_t> OwnTokens(std::span<const int32_t> tokens, int64_t count);
  // The table's rows [tokens.size(), width] F32 of `tokens`, of which `mine` has those of
  // OwnTokens. `scratch`: as large as `all`.
  void GatherEmbeddings(ThreadPool& pool, std::span<const int32_t> tokens, int64_t count,
                        int64_t width, const float* mine, float* scratch, float* all);

 private:
  const AttentionSpec& attention() const { return spec_.layers[layer_].attention; }  // of all ranks
  void FillWidths(int64_t count, int64_t bytes);

  Communicator* group_;
  const DecoderSpec& spec_;
  RankPlace place_;
  size_t layer_ = 0;
  std::vector<int64_t> widths_;   // of a gather, bytes by rank
  std::vector<int64_t> offsets_;  // of GatherEmbeddings
  std::vector<int32_t> own_tokens_;
};

}  // namespace sluice
