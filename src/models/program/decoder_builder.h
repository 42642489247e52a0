// Makes the program of a decoder: the steps of build_decoder.h, in files by subject. Norms, what
// goes in and out of a rank, and results are in build_decoder.cc, attention and mixers in
// build_attention.cc, MLPs and experts in build_experts.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "models/program/build_decoder.h"
#include "models/program/build_latent.h"
#include "models/program/builder.h"
#include "models/stage_rows.h"

namespace sluice::program {

class DecoderBuilder {
 public:
  explicit DecoderBuilder(const DecoderParts& parts);

  Program Build();

  Program BuildLayer(size_t index);

 private:
  RowRange OwnRows(int64_t count) const;
  const LayerSpec& Whole(size_t index) const;
  // The last layer where rows see others: after it only wanted ones are computed. The first one
  // where there is none.
  size_t LastMixing() const;
  RowsIn Normed() { return to_.Rows("normed", Extent::kStep, hidden_); }
  BufferId LastResidual() { return to_.F32("last_residual", Extent::kWanted, hidden_); }
  int64_t MostPairs(int64_t top_k) const;
  // On a device, room for the pieces of all ranks.
  BufferId Joined(int64_t width_bytes);
  Reader ReaderOf(const LinearWeights& weights) { return {.linear = to_.Linear(weights)}; }

  // --- around the sub-layers ---

  // To `normed`, for `reader` (null: for a router alone).
  Norm& EmitNorm(const std::vector<float>& weight, bool exists, bool adds,
                 const LinearWeights* reader, const RowsIn& normed);
  // The same of the kind that the model has, and the type of what it writes, where `reader` does
  // not tell it; null for a layer norm, which the CPU alone computes.
  Norm* EmitRowNorm(const std::vector<float>& weight, const std::vector<float>& bias, bool exists,
                    bool adds, const LinearWeights* reader, const RowsIn& normed,
                    std::optional<ElementType> type = {});
  Norm* EmitFinalNorm(bool adds, const RowsIn& normed, ElementType type);
  // What ranks have of rows as the rows of a matrix, completed in `all`.
  void EmitGather(int64_t count, ElementType type, BufferId own, BufferId all);
  void GatherDelta() { EmitGather(hidden_, ElementType::kF32, own_delta_, delta_); }
  void NormDelta(const std::vector<float>& weight, bool exists);
  // `delta` becomes its norm, where there is one, and is scaled.
  void LeaveSublayer(const std::vector<float>& weight, bool exists);

  // --- what goes out and comes in ---

  void HandOn();

  // Hidden rows, of all rows of the step.
  void HandOnInput(int64_t layer);
  void HandOnNormed();

  void EmbedTokens();
  // DrafterSpec: to the residual, or to the rows that the first layer's attention reads.
  void EmbedDrafts();
  // [norm(embedding), norm(hidden)] for `reader`.
  RowsIn JoinDrafts(const LinearWeights& reader, BufferId hidden, bool norms_hidden);
  RowsIn Joined2() { return to_.Rows("joined_rows", Extent::kStep, 2 * hidden_); }
  bool ReadsJoined(size_t index) const {
    return index == 0 && options_.drafter != nullptr &&
           options_.drafter->kind == DrafterSpec::Kind::kEagle3;
  }
  int64_t NumOutputs() const {
    return options_.drafter != nullptr ? options_.drafter->num_outputs : spec_.vocab_size;
  }
  const DecoderWeights& EmbeddingOwner() const;
  const DecoderWeights& HeadOwner() const;

  // LayerEmbeddingSpec. Source: transformers' Gemma4TextModel, project_per_layer_inputs.
  int64_t AllEmbeddings() const { return spec_.layer_embeddings.width * std::ssize(spec_.layers); }
  BufferId LayerEmbeddings() { return to_.F32("layer_embeddings", Extent::kStep, AllEmbeddings()); }
  void EmbedInLayers();

  // The same, on a device.
  void MixInLayers();

  void AppendFromStages();
  Columns MessageOf(const StageRows::Keys& keys) const;

  BufferId RopeTableOf(int table);
  void FillRopeTables();

  // --- attention ---

  // What needs all rows: to keys and values in the cache, and to states.
  void BeginMixing(size_t index, int64_t cache_layer);
  // To `delta`.
  void EndMixing(size_t index, int64_t cache_layer, bool keeps_wanted);

  // To keys and values in the cache.
  void BeginAttention(size_t index, int64_t cache_layer);

  // From the input of q, k and v, in the type of its own product, which may differ from theirs.
  void MakeAttentionGates(size_t index);
  static int64_t NumGates(const AttentionSpec& spec) {
    return spec.gate == AttentionGate::kEachHead ? spec.num_heads : spec.q_width();
  }
  BufferId AttentionGates(int64_t count);
  // What attention made of the values, times the gates of its heads or numbers.
  void EmitAttentionGate(const AttentionSpec& spec, const AttentionWeights& weights, BufferId rows,
                         ElementType type, int64_t width);
  // What is done to q, k and v before RopeAppend, of rows of which the first `given` numbers are
  // made: limits, layer norms of heads, zeros after the values.
  void PrepareHeads(const AttentionSpec& spec, const AttentionWeights& weights, BufferId qkv,
                    int64_t given);

  // There are fewer heads of k than of q, if anything.
  void AddSquares(size_t index, RopeAppend& append);

  LatentLayer LatentOf(size_t index, int64_t cache_layer);

  int64_t AttendedWidth(size_t index) const { return Whole(index).attention.output_width(); }
  ElementType AttendedType(size_t index) const;
  BufferId Attended(size_t index);
  BufferId OwnAttended(size_t index);
  // On a device, where wanted rows move to.
  BufferId LastAttended(int64_t bytes);

  // Rows that a part of a layer leaves, of which the wanted ones are kept.
  struct Left {
    BufferId rows = kNone;
    int64_t row_bytes = 0;
  };

  // From the cache to this rank's columns of `attended`, or to what its heads attended to in a
  // latent cache.
  Left Attend(size_t index, int64_t cache_layer);

  // To this rank's columns of `delta`.
  void EndAttention(size_t index, int64_t cache_layer, const Left& left);
  void ScaleDelta(BufferId delta, float factor);

  // --- mixers ---

  BufferId Mixed(const MixerSpec& spec);
  // MixerSpec::low_rank: z.
  BufferId MixerGate(const MixerSpec& spec);
  // y [rows, width] of the normed rows, by a product and another of its result.
  void MultiplyLowRank(size_t index, const LinearWeights& down, const LinearWeights& up,
                       const LinearWeights& reader, BufferId y, int64_t width);
  ElementType MixedType(size_t index) const;
  bool IsDivided(size_t index) const;
  BufferId AllMixed(size_t index);
  BufferId OwnMixed(size_t index);

  // The norm of the rows as `weights` reads it, where `normed` is as `reader` does.
  RowsIn NormedFor(size_t index, const LinearWeights& weights, const LinearWeights& reader);

  // To the states of all rows, and what the wanted ones go on with.
  void BeginMixer(size_t index, int64_t cache_layer, const LinearWeights& reader);

  // To this rank's columns of `delta`, or added to those of attention.
  void EndMixer(size_t index);

  // Moves what the last layer reads of the tokens, its own columns alone.
  void MoveRows(KeepRows& keep);

  // --- MLP and experts ---

  void RunMlp(size_t index);
  // Rows in F32, by which experts are chosen.
  BufferId RouterRows();

  // The gate of `x`, to rows that `reader` takes: those of all ranks. `is_normed`: to rows of F32,
  // which a norm reads.
  RowsIn EmitGate(GateMul gate, const Reader& reader, std::string_view name, Extent extent,
                  int64_t all, bool is_normed = false);

  // From `normed` to this rank's columns of `delta`.
  void DenseMlp(size_t index);

  void EmitRoute(size_t index);
  BufferId Chosen(const MoeSpec& spec) { return to_.F32("chosen", Extent::kStep, spec.top_k); }
  BufferId ExpertWeightsOf(const MoeSpec& spec);

  void GateShared(size_t index);

  BufferId SharedGates() { return to_.F32("shared_gates", Extent::kStep, 1); }

  // The chosen experts of all rows, to this rank's columns of `sum`.
  void Experts(size_t index, bool adds, BufferId sum);
  BufferId ExpertRows(size_t index);  // what they read
  // MoeSpec::latent: to this rank's columns of `delta`, or added to those of the MLP.
  void LatentExperts(size_t index, bool adds);

  // MoeSpec::own_norms. The MLP reads `normed` as the norm before it left it.
  void MoeWithOwnNorms(size_t index);

  // --- after the MLP ---

  // Where what layers read of the step's tokens is: of all layers, or as it was received.
  Columns EmbeddingsOfLayers();

  void EndLayer(size_t index);

  void AddLayerEmbedding(size_t index);

  // The same on a device, whose gate reads both halves where they are.
  void GateLayerEmbedding(size_t index);

  // --- results ---

  void MakeResults();

  void MakeLogits(bool adds);
  void HandOnDrafts();
  // On a device in its memory, from where they are copied, at the first rank.
  BufferId LogitsOfAll();

  const DecoderSpec& spec_;
  const DecoderSpec share_;
  const ModelOptions& options_;
  const RankPlace place_;
  const int num_threads_;
  const DecoderWeights& weights_;
  const DecoderWeights* const target_;
  const bool is_shared_;
  const int64_t hidden_, own_hidden_;
  const int64_t first_layer_;
  const StageRows stage_rows_;
  Builder to_;
  BufferId residual_ = kNone, delta_ = kNone, own_delta_ = kNone;
  // Whether `delta` holds what the residual has not got yet.
  bool has_delta_ = false;
  VectorId sum_factor_ = kNone;  // of the layer before, which the next norm applies: devices
};

}  // namespace sluice::program
