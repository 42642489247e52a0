// The ranks that share each layer of a stage, and how they gather results.
//
// A rank writes its columns of an array to its own memory. If a sum over all columns follows, the
// ranks gather the array. A single rank writes the array directly.
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
  // `group`: the stage's ranks. `spec`: the whole model. `max_rows`: per step.
  TensorRanks(Communicator& group, DecoderSpec spec, const RankPlace& place, int64_t max_rows);

  // The functions below refer to heads of this layer of the whole model.
  void EnterLayer(int64_t layer) { layer_ = static_cast<size_t>(layer); }

  // The rows that this rank holds of a matrix with `count` rows.
  RowRange RowsOf(int64_t count) const {
    return CutRows(count, place_.tensor_rank, place_.tensor_size);
  }
  // The columns of q, and of k, that this rank holds.
  RowRange q_columns() const;
  RowRange k_columns() const;
  // The columns of k that this rank contributes to GatherKeys: if several ranks hold a head, only
  // the first contributes it.
  RowRange given_k_columns() const;

  // Each function gathers `rows` rows; `mine`: this rank's columns. GatherHeads: attention's
  // results by query head.
  void GatherHeads(ThreadPool& pool, ElementType type, int64_t rows, const void* mine, void* all);
  // Columns of the heads of the current layer's mixer.
  void GatherMixed(ThreadPool& pool, ElementType type, int64_t rows, const void* mine, void* all);
  // F32 queries, and keys; for keys, `mine` has the given_k_columns().
  void GatherQueries(ThreadPool& pool, int64_t rows, const float* mine, float* all) {
    GatherHeads(pool, ElementType::kF32, rows, mine, all);
  }
  void GatherKeys(ThreadPool& pool, int64_t rows, const float* mine, float* all);
  // Columns that are divided like the rows of a matrix with `count` rows.
  void GatherRowsOf(ThreadPool& pool, int64_t count, ElementType type, int64_t rows,
                    const void* mine, void* all);
  // Like GatherRowsOf for logits, at the first rank only.
  void GatherLogits(ThreadPool& pool, int64_t rows, const float* mine, float* all);

  // For a table of `count` rows, divided like a matrix: the indices, in this rank's part, of those
  // `tokens` that it holds, in order; valid until the next call.
  std::span<const int32_t> OwnTokens(std::span<const int32_t> tokens, int64_t count);
  // Gathers the table's rows for `tokens`, F32 [tokens.size(), width]; `mine`: those of OwnTokens.
  // `scratch`: as large as `all`.
  void GatherEmbeddings(ThreadPool& pool, std::span<const int32_t> tokens, int64_t count,
                        int64_t width, const float* mine, float* scratch, float* all);

 private:
  const AttentionSpec& attention() const {
    return spec_.layers[layer_].attention;
  }  // with the
     // heads of all
     // ranks
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
