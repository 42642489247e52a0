// Builds a decoder's program (build_decoder.h). Norms, embeddings, messages between stages and
// results are in build_decoder.cc, attention and mixers in build_attention.cc, MLPs and experts in
// build_experts.cc.
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
  // Index of the last layer with attention or a mixer, or 0: after it, only the rows with results
  // are computed.
  size_t LastMixing() const;
  RowsIn Normed() { return to_.Rows("normed", Extent::kStep, hidden_); }
  BufferId LastResidual() { return to_.F32("last_residual", Extent::kWanted, hidden_); }
  int64_t MostPairs(int64_t top_k) const;
  // On a device: a buffer for the pieces of all ranks.
  BufferId Joined(int64_t width_bytes);
  Reader ReaderOf(const LinearWeights& weights) { return {.linear = to_.Linear(weights)}; }

  // --- around the sublayers ---

  // Emits a norm that writes `normed` in the type that `reader` reads; without a reader, in F32.
  Norm& EmitNorm(const std::vector<float>& weight, bool exists, bool adds,
                 const LinearWeights* reader, const RowsIn& normed);
  // Like EmitNorm, for the model's kind of norm. `type`: type of the output, if `reader` does not
  // determine it. Returns null for a layer norm, which only the CPU computes.
  Norm* EmitRowNorm(const std::vector<float>& weight, const std::vector<float>& bias, bool exists,
                    bool adds, const LinearWeights* reader, const RowsIn& normed,
                    std::optional<ElementType> type = {});
  Norm* EmitFinalNorm(bool adds, const RowsIn& normed, ElementType type);
  // Emits the final norm of the current rows, for a drafting head. Returns its F32 result.
  BufferId FinalNormed(Extent extent, bool adds);
  // Gathers rows in `all`. Each rank has some of their columns, divided like the rows of a matrix
  // with `count` rows.
  void EmitGather(int64_t count, ElementType type, BufferId own, BufferId all);
  void GatherDelta() { EmitGather(hidden_, ElementType::kF32, own_delta_, delta_); }
  void NormDelta(const std::vector<float>& weight, bool exists);
  // For StreamsSpec. CollapseStreams writes the sum that a sublayer reads to the residual; the norm
  // that follows adds nothing. ExpandStreams adds the sublayer's result to the streams. Both do
  // nothing in other models.
  void CollapseStreams(const StreamWeights& weights, bool is_last = false);
  void ExpandStreams();
  BufferId Streams() { return to_.F32("streams", Extent::kStep, spec_.streams->count * hidden_); }
  BufferId StreamMixes() {
    const int64_t count = spec_.streams->count;
    return to_.F32("stream_mixes", Extent::kStep, count * (1 + count));
  }
  // Applies the norm, if it exists, to `delta`, and scales `delta`.
  void LeaveSublayer(const std::vector<float>& weight, bool exists);

  // --- messages between stages, hidden rows and drafts ---

  void HandOn();

  // Emits HandRows of the layer's input, for all rows of the step.
  void HandOnInput(int64_t layer);
  // The buffer of Model::handed_rows() on a device.
  BufferId HandedMemory(Extent extent, int64_t width);
  void HandOnNormed(bool adds);
  // With pipeline stages, the last stage returns all rows of the step together with the hidden
  // rows, and the first stage outputs them.
  bool StagesHandOn() const { return place_.num_stages > 1 && options_.handed.any(); }
  Columns HandedColumns() const {
    return {.buffer = residual_, .rows_before = hidden_, .stride = stage_rows_.handed};
  }
  void HandOnReturned();
  // Continues with the rows whose results are wanted. Returns the SkipUnless operator for steps
  // without such rows.
  int32_t KeepWanted();

  void EmbedTokens();
  // For DrafterSpec: embeds tokens into the residual, or into the rows that the first layer's
  // attention reads.
  void EmbedDrafts();
  // Builds the program of a DFlash drafter.
  Program BuildBlockDrafter();
  // Emits a layer, starting after its attention or mixer. If only the wanted rows are kept, adds
  // the SkipUnless for steps without wanted rows to `skips`.
  void FinishLayer(size_t index, bool keeps_wanted, std::vector<int32_t>& skips);
  // Reads the target's hidden rows into F32 rows of `out`.
  void ProjectTargets(BufferId out);
  // Emits [norm(embedding), norm(hidden)] for `reader`.
  RowsIn JoinDrafts(const LinearWeights& reader, BufferId hidden, bool norms_hidden);
  RowsIn Joined2();
  bool ReadsJoined(size_t index) const {
    return index == 0 && options_.drafter != nullptr &&
           options_.drafter->kind == DrafterSpec::Kind::kEagle3;
  }
  int64_t NumOutputs() const {
    return options_.drafter != nullptr ? options_.drafter->num_outputs : spec_.vocab_size;
  }
  const DecoderWeights& EmbeddingOwner() const;
  const DecoderWeights& HeadOwner() const;

  // For LayerEmbeddingSpec. Source: transformers' Gemma4TextModel, project_per_layer_inputs.
  int64_t AllEmbeddings() const { return spec_.layer_embeddings.width * std::ssize(spec_.layers); }
  BufferId LayerEmbeddings() { return to_.F32("layer_embeddings", Extent::kStep, AllEmbeddings()); }
  void EmbedInLayers();

  // Like EmbedInLayers, on a device.
  void MixInLayers();

  void AppendFromStages();
  Columns MessageOf(const StageRows::Keys& keys) const;

  // Whether rows of the step may be image rows.
  bool TakesImages() const { return !to_.is_device() || options_.image_rows > 0; }

  BufferId RopeTableOf(int table);
  void FillRopeTables();

  // --- attention ---

  // Emits the operators for all rows, up to storing keys and values in the cache and updating
  // states.
  void BeginMixing(size_t index, int64_t cache_layer);
  // Emits the remaining operators, up to `delta`.
  void EndMixing(size_t index, int64_t cache_layer, bool keeps_wanted);

  // Emits the operators of attention up to storing keys and values in the cache.
  void BeginAttention(size_t index, int64_t cache_layer);

  // Computes gates from the input of q, k and v, in the type that the gate's product reads.
  void MakeAttentionGates(size_t index);
  // Return the buffer of the blocks that rows attend to, or kNone, and emit the choice of them.
  BufferId ChosenBlocks(const AttentionSpec& spec);
  void EmitBlockIndexer(size_t index, int64_t cache_layer);
  static int64_t NumGates(const AttentionSpec& spec) {
    return spec.gate == AttentionGate::kEachHead ? spec.num_heads : spec.q_width();
  }
  BufferId AttentionGates(int64_t count);
  // Multiplies the output of attention by the gates of its heads or elements.
  void EmitAttentionGate(const AttentionSpec& spec, const AttentionWeights& weights, BufferId rows,
                         ElementType type, int64_t width);
  // Prepares q, k and v for RopeAppend: clamps them, applies layer norms to heads, and pads values
  // with zeros. `given`: number of leading elements of a row that were computed.
  void PrepareHeads(const AttentionSpec& spec, const AttentionWeights& weights, BufferId qkv,
                    int64_t given);

  // Adds the buffers for sums of squares. They have room for the heads of q; there are never more
  // heads of k.
  void AddSquares(size_t index, RopeAppend& append);

  LatentLayer LatentOf(size_t index, int64_t cache_layer);

  int64_t AttendedWidth(size_t index) const { return Whole(index).attention.output_width(); }
  ElementType AttendedType(size_t index) const;
  BufferId Attended(size_t index);
  BufferId OwnAttended(size_t index);
  // On a device: the buffer to which the rows with results move.
  BufferId LastAttended(int64_t bytes);

  // The rows in the middle of a layer, when only the rows with results are kept.
  struct Left {
    BufferId rows = kNone;
    int64_t row_bytes = 0;
  };

  // Emits attention to the cache. The result is this rank's columns of `attended` or, with latent
  // attention, the weighted sums of latent vectors for this rank's heads.
  Left Attend(size_t index, int64_t cache_layer);

  // Emits the output projection to this rank's columns of `delta`.
  void EndAttention(size_t index, int64_t cache_layer, const Left& left);
  void ScaleDelta(BufferId delta, float factor);

  // --- mixers ---

  BufferId Mixed(const MixerSpec& spec);
  // Returns the buffer of the convolution's results.
  BufferId Convolved(const MixerSpec& spec);  // only on a device
  void EmitStateGate(size_t index);
  // Returns the number of elements of a row that the product of q, k and v writes.
  static int64_t ProjectedWidth(const AttentionSpec& spec);
  // Returns the buffer for z, which is not part of the mixer's rows with MixerSpec::low_rank.
  BufferId MixerGate(const MixerSpec& spec);
  // Computes y [rows, width] from the normalized rows by two consecutive products.
  void MultiplyLowRank(size_t index, const LinearWeights& down, const LinearWeights& up,
                       const LinearWeights& reader, BufferId y, int64_t width);
  ElementType MixedType(size_t index) const;
  bool IsDivided(size_t index) const;
  BufferId AllMixed(size_t index);
  BufferId OwnMixed(size_t index);

  // Returns the normalized rows in the input type of `weights`. Returns `normed`, which has the
  // input type of `reader`, if the types are equal; else emits the norm again into another buffer.
  RowsIn NormedFor(size_t index, const LinearWeights& weights, const LinearWeights& reader);

  // Emits the update of states for all rows, and leaves the rows with results for EndMixer.
  void BeginMixer(size_t index, int64_t cache_layer, const LinearWeights& reader);

  // Emits the computation of this rank's columns of `delta`, or adds to the columns that attention
  // has written.
  void EndMixer(size_t index);

  // Sets where a device moves the rows that the last layer reads. Of the layer embeddings, only
  // that layer's columns are moved.
  void MoveRows(KeepRows& keep);

  // --- MLP and experts ---

  void RunMlp(size_t index);
  // Returns the buffer of F32 rows from which experts are chosen.
  BufferId RouterRows();

  // Applies a gate and gathers the results of all ranks in rows that `reader` reads. `is_normed`:
  // the rows are F32, because a norm reads them.
  RowsIn EmitGate(GateMul gate, const Reader& reader, std::string_view name, Extent extent,
                  int64_t all, bool is_normed = false);

  // Computes this rank's columns of `delta` from `normed`.
  void DenseMlp(size_t index);

  void EmitRoute(size_t index);
  BufferId Chosen(const MoeSpec& spec) { return to_.F32("chosen", Extent::kStep, spec.top_k); }
  BufferId ExpertWeightsOf(const MoeSpec& spec);

  void GateShared(size_t index);

  BufferId SharedGates() { return to_.F32("shared_gates", Extent::kStep, 1); }

  // Computes the chosen experts of all rows. Writes this rank's columns of `sum`.
  void Experts(size_t index, bool adds, BufferId sum);
  BufferId ExpertRows(size_t index);  // returns the input of experts
  // For MoeSpec::latent: writes this rank's columns of `delta`, or adds to the columns of the MLP.
  void LatentExperts(size_t index, bool adds);

  // For MoeSpec::own_norms. REQUIRES: `normed` contains the norm before the MLP.
  void MoeWithOwnNorms(size_t index);

  // --- after the MLP ---

  // Returns the columns with the per-layer embeddings of the step's tokens: for all layers, or
  // those received from the previous stage.
  Columns EmbeddingsOfLayers();

  void EndLayer(size_t index);

  void AddLayerEmbedding(size_t index);

  // Like AddLayerEmbedding, on a device, where the gate reads both factors in place.
  void GateLayerEmbedding(size_t index);

  // --- results ---

  void MakeResults();

  void MakeLogits(bool adds);
  void HandOnDrafts();
  // Returns the buffer for the logits of all ranks. On the CPU it is the step's results. On a
  // device it is a buffer of the first rank, from which they are copied; kNone at other ranks.
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
  // Whether `delta` has not been added to the residual yet.
  bool has_delta_ = false;
  // Factor of the previous layer, applied by the next norm; only on devices.
  VectorId sum_factor_ = kNone;
};

}  // namespace sluice::program
