// The ranks that share each layer of a stage, and how they gather results.
//
// A rank writes its columns of an array to its own memory. If a later operator sums over all
// columns, the ranks gather the array first. If there is one rank, it writes the whole array
// directly.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "models/decoder_spec.h"
#include "models/shard.h"
#include "parallel/communicator.h"

namespace sluice {

// Describes which rows, columns and heads one rank of a tensor-parallel group has, and gathers
// results from all ranks. Every rank of the group must call the same Gather functions in the same
// order. Thread safety: as for `group`.
class TensorRanks {
 public:
  // `group`: the ranks of the stage. `spec`: the whole model. `max_rows`: maximum rows per step.
  TensorRanks(Communicator& group, DecoderSpec spec, const RankPlace& place, int64_t max_rows);

  // Selects the layer, by its number in the whole model, whose heads the functions below use.
  void EnterLayer(int64_t layer) { layer_ = static_cast<size_t>(layer); }

  // Returns the rows that this rank has of a matrix with `count` rows.
  RowRange RowsOf(int64_t count) const {
    return CutRows(count, place_.tensor_rank, place_.tensor_size);
  }
  // Return the columns of q and of k that this rank has.
  RowRange q_columns() const;
  RowRange k_columns() const;
  // Returns the columns of k that this rank contributes to GatherKeys. If several ranks have the
  // same head, only the first contributes it.
  RowRange given_k_columns() const;

  // Each Gather function gathers `rows` rows into `all`; `mine` contains this rank's columns.
  // GatherHeads gathers the results of attention by query head.
  void GatherHeads(ThreadPool& pool, ElementType type, int64_t rows, const void* mine, void* all);
  // Gathers the columns of the heads of the current layer's mixer.
  void GatherMixed(ThreadPool& pool, ElementType type, int64_t rows, const void* mine, void* all);
  // Gather F32 queries and keys; for keys, `mine` has the given_k_columns().
  void GatherQueries(ThreadPool& pool, int64_t rows, const float* mine, float* all) {
    GatherHeads(pool, ElementType::kF32, rows, mine, all);
  }
  void GatherKeys(ThreadPool& pool, int64_t rows, const float* mine, float* all);
  // Gathers columns that are divided like the rows of a matrix with `count` rows.
  void GatherRowsOf(ThreadPool& pool, int64_t count, ElementType type, int64_t rows,
                    const void* mine, void* all);
  // Like GatherRowsOf, for logits, but only the first rank receives them.
  void GatherLogits(ThreadPool& pool, int64_t rows, const float* mine, float* all);

  // Returns the subset of `tokens` whose embedding rows this rank has. The table has `count` rows
  // and is divided like a matrix. The results are indices into this rank's rows, in the order of
  // `tokens`. Valid until the next call.
  std::span<const int32_t> OwnTokens(std::span<const int32_t> tokens, int64_t count);
  // Gathers the table's rows for `tokens`: F32 [tokens.size(), width]. `mine`: the rows of
  // OwnTokens. `scratch` has the size of `all`.
  void GatherEmbeddings(ThreadPool& pool, std::span<const int32_t> tokens, int64_t count,
                        int64_t width, const float* mine, float* scratch, float* all);

 private:
  const AttentionSpec& attention() const {
    return spec_.layers[layer_].attention;
  }  // has the heads of all ranks
  void FillWidths(int64_t count, int64_t bytes);

  Communicator& group_;
  const DecoderSpec spec_;
  RankPlace place_;
  size_t layer_ = 0;
  std::vector<int64_t> widths_;   // number of bytes of each rank in a gather
  std::vector<int64_t> offsets_;  // used by GatherEmbeddings
  std::vector<int32_t> own_tokens_;
};

}  // namespace sluice
