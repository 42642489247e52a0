// Determines the part of a decoder that each rank has.
//
// Ranks are divided into stages of consecutive layers. The ranks of a stage divide each of its
// layers by output rows:
//   q, k and v     whole heads. With more ranks than KV heads, several ranks have the same KV head
//                  and divide its query heads. With latent attention, all ranks have the single KV
//                  head,
//                  and the matrices of their own query heads.
//   mixers         whole key heads with their value heads, and the channels of their convolutions,
//                  if the number of ranks divides the number of key heads; else every rank computes
//                  all
//   o_proj, down   rows of the hidden size
//   gate and up    the same rows of both; for experts, rows of every expert
//   head           rows of the vocabulary, in the first stage; so is the embedding table, which may
//                  be the same matrix
//   embeddings in layers   rows of the table's vocabulary and of their projection, in the first
//                  stage; a layer's gate and projection are divided by rows
// Every rank has the norms, routers and the residual. Since no sum over inputs is split, results
// are bit-identical to those of a single rank.
#pragma once

#include "base/result.h"
#include "models/decoder_spec.h"
#include "models/kv_cache.h"
#include "models/row_range.h"

namespace sluice {

// The position of a rank in the group. Its number is stage * tensor_size + tensor_rank.
struct RankPlace {
  int tensor_rank = 0;
  int tensor_size = 1;  // number of ranks that share a layer
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

// Maximum number of ranks in a group.
inline constexpr int kMostRanks = 256;

// Returns the rows, out of `count` rows, that belong to rank `rank` of `size` ranks: whole panels
// of packed matrices if there is at least one panel per rank.
RowRange CutRows(int64_t count, int rank, int size);

// A rank's query heads and KV heads.
struct HeadCut {
  RowRange q;
  RowRange kv;
};
HeadCut CutHeads(const AttentionSpec& attention, int rank, int size);

// Returns the KV heads of this rank that no earlier rank has, so that each head is assigned to one
// rank.
RowRange FirstHeldKeys(const AttentionSpec& attention, int rank, int size);

// A rank's heads of a mixer: whole key heads with their value heads if the ranks divide them
// evenly, else all heads. For a short convolution, channels as in CutRows.
struct MixerCut {
  RowRange heads;
  RowRange key_heads;
};
MixerCut CutMixer(const MixerSpec& mixer, int rank, int size);

// Returns the layers of a stage. The first stage also has the embedding and the head, so it never
// has more layers than other stages.
RowRange CutLayers(int64_t num_layers, int stage, int num_stages);
// Returns the layers of `spec` (the whole model) that the rank at `place` computes.
RowRange LayersOf(const DecoderSpec& spec, const RankPlace& place);

// Returns kInvalidArgument, naming the option, for an encoder, or if the decoder has fewer heads,
// rows or layers than `tensor_size` or `num_stages` require.
Status CheckRanks(const DecoderSpec& spec, int tensor_size, int num_stages);

// Returns the part that the rank at `place` computes as a decoder: its layers, with its heads and
// intermediate rows.
DecoderSpec ShareOf(const DecoderSpec& spec, const RankPlace& place);

// Returns the groups of a rank's cache. `groups`: the groups for the whole `spec`. Block ids are
// the same, but the cache has memory only for the rank's heads: in its own layers, and in layers of
// other stages whose keys and values it reads.
KvGroups ShareGroups(const KvGroups& groups, const DecoderSpec& spec, const RankPlace& place);
// Returns the number of layers whose keys and values are in the rank's cache.
int64_t NumHeldKvLayers(const DecoderSpec& spec, const RankPlace& place);

}  // namespace sluice
