// Which part of a decoder a rank holds.
//
// Ranks are cut into stages, which hold layers that follow each other; those of a stage share each
// of its layers by output rows:
//   q, k and v     whole heads. With more ranks than KV heads, several hold the same KV head, and
//                  divide its query heads among them: all hold the one of latent attention, with
//                  the matrices of their own query heads.
//   mixers         whole key heads with their heads of values, and the channels of their
//                  convolutions, where the ranks divide the key heads evenly; else every rank
//                  computes all
//   o_proj, down   rows of the hidden size
//   gate and up    the same rows of both; of experts, inside every expert
//   head           rows of the vocabulary, in the first stage; and so the embedding's table, which
//                  may be the same matrix
//   embeddings in layers   rows of the table's vocabulary, and of their projection, in the first
//                  stage; of a layer's gate and projection, its rows
// Norms, routers and the residual are every rank's. Since no sum over inputs is cut, a rank
// computes the bits that one rank for all would.
#pragma once

#include "base/result.h"
#include "models/decoder_spec.h"
#include "models/kv_cache.h"
#include "models/row_range.h"

namespace sluice {

// Where a rank is among all: rank `stage * tensor_size + tensor_rank`.
struct RankPlace {
  int tensor_rank = 0;
  int tensor_size = 1;  // ranks that share a layer
  int stage = 0;
  int num_stages = 1;

  int rank() const { return stage * tensor_size + tensor_rank; }
  int num_ranks() const { return tensor_size * num_stages; }
  bool is_first_stage() const { return stage == 0; }
  bool is_last_stage() const { return stage + 1 == num_stages; }
  bool is_alone() const { return num_ranks() == 1; }

  static RankPlace Of(int rank, int tensor_size, int num_stages) {
    return {rank % tensor_size, tensor_size, rank / tensor_size, num_stages};
  }
};

// The most ranks that a group may have.
inline constexpr int kMostRanks = 256;

// Rows of `count` that rank `rank` of `size` holds: whole panels of packed matrices, where there is
// at least one for each rank.
RowRange CutRows(int64_t count, int rank, int size);

// Query heads and KV heads.
struct HeadCut {
  RowRange q;
  RowRange kv;
};
HeadCut CutHeads(const AttentionSpec& attention, int rank, int size);

// The KV heads of this rank that no earlier rank holds: each head belongs to one rank.
RowRange FirstHeldKeys(const AttentionSpec& attention, int rank, int size);

// Heads of a mixer that the rank computes: where its key heads can be divided evenly, whole ones
// with their heads of values, else all at every rank; of a short convolution channels, as CutRows.
struct MixerCut {
  RowRange heads;
  RowRange key_heads;
};
MixerCut CutMixer(const MixerSpec& mixer, int rank, int size);

// Layers of a stage. The first one, which also has embedding and head, never has more than others.
RowRange CutLayers(int64_t num_layers, int stage, int num_stages);
// Layers of `spec`, that of the whole model, that the rank at `place` holds.
RowRange LayersOf(const DecoderSpec& spec, const RankPlace& place);

// kInvalidArgument that names the option for an encoder, and where the decoder has fewer heads,
// rows or layers than `tensor_size` or `num_stages` ask for.
Status CheckRanks(const DecoderSpec& spec, int tensor_size, int num_stages);

// What the rank at `place` computes, as a decoder of its own: its layers, with the heads and the
// intermediate rows that it holds.
DecoderSpec ShareOf(const DecoderSpec& spec, const RankPlace& place);

// The groups of a rank's cache: with the block ids of `groups`, which are those of `spec`, but with
// memory for the rank's layers alone, and those of other stages whose keys and values they read;
// and with the heads that the rank holds.
KvGroups ShareGroups(const KvGroups& groups, const DecoderSpec& spec, const RankPlace& place);
// Layers whose keys and values the rank's cache holds.
int64_t NumHeldKvLayers(const DecoderSpec& spec, const RankPlace& place);

}  // namespace sluice
