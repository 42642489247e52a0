// The decoder on a device: it computes what a DecoderSpec describes, or a rank's share of it, with
// the fused kernels.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "device/device.h"
#include "kernels/cuda/device_linear.h"
#include "models/decoder_spec.h"
#include "models/device/device_graphs.h"
#include "models/device/device_lora.h"
#include "models/device/device_ranks.h"
#include "models/device/device_step.h"
#include "models/device/device_weights.h"
#include "models/device/device_workspace.h"
#include "models/model.h"

namespace sluice {

// Ownership: the device and the memory of weights and workspace outlive it.
//
// Of several ranks, Begin and Finish are called by all with the same input, as DecoderModel's; one
// step is in flight at a time. Alone, the next step is sent while one runs.
class DeviceDecoder final : public Model {
 public:
  struct Parts {
    Device& device;
    const device::DeviceKernels& kernels;
    std::unique_ptr<DeviceStream> stream;
    std::unique_ptr<device::DeviceLinear> linear;
    DeviceDecoderWeights weights;
    DeviceWorkspaceLayout layout;
    std::byte* workspace = nullptr;
    DeviceStepInputs inputs;
    std::unique_ptr<DeviceRanks> ranks;  // null: alone
    // For the ends of steps.
    std::array<std::unique_ptr<DeviceEvent>, DeviceStepInputs::kMostInFlight> events;
    // Page-locked: how many rows the experts of a large step have; empty where there are none.
    DeviceBuffer expert_rows = {};
    std::vector<float> scores = {};              // DecoderWeights::scores, of the first rank
    std::shared_ptr<DeviceLoraSlots> lora = {};  // null: no adapters are served
  };

  // `spec`: of the whole model.
  DeviceDecoder(ModelConfig config, const ModelOptions& options, DecoderSpec spec,
                const RankPlace& place, Parts parts);
  ~DeviceDecoder() override;

  // Lets the products' kernels be chosen by measuring them, where there is a choice. To be called
  // before the first step.
  Status Tune();

  bool draws_tokens() const override {
    return spec_.head.kind == HeadSpec::Kind::kVocabulary &&
           spec_.vocab_size <= kernels::kMostDrawnTokens;
  }
  DrawLimits draw_limits() const override {
    return draws_tokens() ? DeviceStepInputs::DrawLimitsOf(spec_, options_) : DrawLimits();
  }
  void PrepareLogits(std::span<float> logits) override;
  void Forward(ThreadPool& threads, const StepInput& input, KvCache& cache,
               float* logits) override {
    Begin(threads, input, cache, logits);
    Finish(threads);
  }
  int steps_in_flight() const override {
    return parts_.ranks == nullptr ? DeviceStepInputs::kMostInFlight : 1;
  }
  std::shared_ptr<LoraStore> lora() override { return parts_.lora; }
  bool takes_drawn_tokens() const override { return parts_.ranks == nullptr && draws_tokens(); }
  Status RecordSteps(const RecordedSteps& steps, KvCache& cache) override;
  int64_t num_replayed() const override { return num_replayed_; }
  // A step of single tokens as a graph; `input` is sent, and `runs_before` as in RecordedSteps.
  // `padded` becomes what Send makes of it. Throws what the model's steps throw.
  Result<std::unique_ptr<DeviceGraph>> Record(const StepInput& input, bool runs_before,
                                              PaddedStep& padded, const KvCache& cache);
  void Begin(ThreadPool& threads, const StepInput& input, KvCache& cache, float* logits) override;
  void Finish(ThreadPool& threads) override;

 private:
  // Of a step that was enqueued.
  struct Begun {
    std::span<TokenDraw> draws;
    int buffer = 0;              // of parts_.inputs
    DeviceEvent* end = nullptr;  // recorded behind it
    std::string failure;         // of a step before: what it computes is nothing
    // Of HeadSpec::Kind::kScores: what Finish makes of `hidden`.
    float* results = nullptr;
    int64_t num_results = 0;     // rows
    std::vector<float> hidden;   // [max_logit_rows, hidden], or empty
    std::vector<int32_t> slots;  // of the adapters that it uses, and -1 for rows without
  };
  // Of the step that is being enqueued.
  struct Rows {
    float* residual = nullptr;
    int64_t count = 0;
  };

  template <typename T = void>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(parts_.workspace + offset);
  }
  device::RowsOut RowsAt(int64_t data, int64_t scales, const DeviceInputs& inputs) const;
  device::RowsOut Normed(const DeviceInputs& inputs) const;
  // Of rows of the hidden size, those from `first` on.
  device::RowsOut RowsFrom(int64_t first, device::RowsOut rows) const;
  // `sum_factor`: of the residual with `delta`.
  void Norm(const Rows& rows, const float* delta, const float* weight, const DeviceInputs& inputs,
            float* out_f32, float sum_factor = 1);
  // Of the wanted rows, with what the last layer left in `delta`.
  void FinalNorm(const Rows& rows, const DeviceInputs& inputs, float* out_f32);
  // `data` [rows, hidden] and `delta`, if not null, become the norm of their sum; without `weight`
  // the sum.
  void NormRows(float* data, const float* delta, const float* weight, int64_t rows);
  // `delta` becomes its norm, where the layer has one behind the sub-layer (`weight` is not null).
  void NormDelta(const float* weight, int64_t rows);
  device::LinearArgs ProductOf(const DeviceLinearWeights& weights, const device::RowsOut& x,
                               int64_t rows, void* y, ElementType y_type) const;
  // With what the step's adapters add. The first of `rows` is row `first_row` of what is computed:
  // of the step, or of the rows whose logits are wanted.
  void Multiply(const DeviceLinearWeights& weights, const device::RowsOut& x, int64_t rows, void* y,
                ElementType y_type, int64_t first_row = 0);
  // The rows that have adapters; nothing where none of these changes the layer.
  std::optional<device::AddLoraArgs> AdaptersOf(int layer) const;
  // To dense rows y of `cols` numbers; `layer` as AdaptersOf.
  void AddLora(int layer, const device::RowsOut& x, int64_t rows, void* y, ElementType y_type,
               int64_t cols, int64_t first_row);
  // Of the pairs of GroupByExpert, whose rows are those from `first` on.
  void AddExpertLora(const DeviceExpertWeights& weights, const device::GroupedLinearArgs& products,
                     int64_t first, int64_t top_k);
  void AddEmbeddingLora(const Rows& rows);
  device::GroupedLinearArgs ExpertProducts(const DeviceExpertWeights& weights, int64_t num_experts,
                                           const device::RowsOut& x, int64_t pairs, void* y,
                                           ElementType y_type) const;
  // Each expert's product by itself, of the rows that begin at `row_begin` on the host; empty: as
  // one grouped product.
  void MultiplyExperts(const device::GroupedLinearArgs& products,
                       std::span<const int32_t> row_begin);
  // Where the rows of experts begin, once the device has grouped them.
  std::span<const int32_t> ReceiveExpertRows(int64_t num_experts);
  Status TuneExperts(const DeviceExpertWeights& weights, int64_t num_experts,
                     const device::RowsOut& x, void* y, ElementType y_type);
  using ApplyGate = std::function<void(const device::RowsOut& out)>;
  device::RowsOut GateRows(const DeviceInputs& inputs, int64_t rows, int64_t width,
                           const ApplyGate& apply);
  void MultiplyGate(Activation activation, int64_t rows, int64_t width, const device::RowsOut& out);
  void ApplyExpertGate(const MoeSpec& spec, const DeviceExpertWeights& gate_up,
                       const int32_t* chosen, int64_t pairs, const device::RowsOut& out);
  bool is_shared() const { return place_.tensor_size > 1; }
  // Where a product's results go that are a part of `delta`, and what makes it whole.
  float* OwnDelta() const {
    return At<float>(is_shared() ? parts_.layout.own_delta : parts_.layout.delta);
  }
  void GatherDelta(int64_t rows) { GatherHidden(rows, At<float>(parts_.layout.delta)); }
  // All columns of results that the ranks have in their `own_delta`.
  void GatherHidden(int64_t rows, float* all);

  // The residual of the step's tokens: of the embedding, or from the stage before.
  void Begin(const Rows& rows);
  // What layers read of the step's tokens, from their scaled embeddings.
  void EmbedInLayers(const Rows& rows);
  void FillRopeTables(int64_t rows);
  // Hands residual and delta, added, to the next stage; the last one's to the first.
  void PassOn(const Rows& rows);
  void Receive(const Rows& rows, int from_stage);
  int RankOfStage(int stage) const { return stage * place_.tensor_size + place_.tensor_rank; }

  // `index`: of the layer in this stage.
  void ProjectAndAppend(size_t index, const device::KvArrays& cache, int64_t group, int64_t rows);
  // QkNorm::kWholeWidth: what the norms of q and k that rope_append computes are over.
  void SumHeadSquares(size_t index, int64_t rows, device::RopeAppendArgs& args);
  void Attend(const AttentionSpec& spec, const DeviceLayerWeights& weights,
              const device::KvArrays& cache, int64_t group);
  Rows KeepLogitRows(const AttentionSpec& spec, int64_t rows);
  void ProjectOutput(const AttentionSpec& spec, const DeviceLayerWeights& weights,
                     uint16_t* attended, int64_t rows);
  void Mlp(size_t index, int64_t rows);
  // Leaves its result in what this rank has of `delta`; with MoeSpec::own_norms in all of it.
  void Moe(size_t index, const Rows& rows);
  void MoeWithOwnNorms(size_t index, const Rows& rows);
  void Route(size_t index, int64_t rows);
  // Of the MLP beside the experts; combine_experts applies them.
  void ComputeSharedGates(size_t index, int64_t rows);
  // To logits [rows, count] what the adapters of layer `lora_layer` add from rows in F32.
  void AddRouterLogits(int lora_layer, int64_t rows, int64_t count, float* logits);
  // The experts of all rows, and of some, into rows of `sum`: the columns that this rank has.
  void RunAllChosen(size_t index, int64_t rows, bool add, float* sum);
  void RunChosen(size_t index, int64_t first, int64_t count, bool add, float* sum);
  // The sub-layer of what the layer reads of the tokens.
  void AddLayerEmbedding(size_t index, const Rows& rows);
  void Enqueue(const StepInput& input, const KvCache& cache, float* logits);
  // What follows is the same for all steps of equal numbers of rows whose logits are all wanted.
  // All layers of a step that was sent; the rows that the head takes, or none.
  Rows RunLayers(int64_t rows, int64_t logit_rows, const KvCache& cache);
  void FailInFlight(const std::string& reason);
  // The step's adapters may be replaced.
  void EndUse(const Begun& begun);
  // Draws the tokens that the step asks for, and copies the other rows of logits to the host.
  void FinishLogits(const StepInput& input, float* logits);
  // The final norm of the wanted rows, and their logits, on the device.
  void ComputeLogits(const Rows& rows);
  // The final norm of the wanted rows, to the host.
  void CopyHidden(const Rows& rows, float* results);

  const LayerSpec& WholeLayer(size_t index) const {
    return spec_.layers[static_cast<size_t>(layers_.begin) + index];
  }

  // The recorded steps that this one may be replayed by; null: none.
  const StepGraphs::Size* GraphsFor(const StepInput& input, const KvCache& cache) const;

  ModelOptions options_;
  DecoderSpec spec_;  // of the whole model
  RankPlace place_;
  DecoderSpec share_;  // of this rank
  RowRange layers_;    // of the whole model's, those of this stage
  Parts parts_;
  void* pinned_logits_ = nullptr;
  std::array<Begun, DeviceStepInputs::kMostInFlight> begun_;  // used in turn
  size_t newest_ = 0;                                         // that is being enqueued
  size_t first_begun_ = 0;
  int num_in_flight_ = 0;
  StepGraphs graphs_;
  bool is_recording_ = false;
  int64_t num_replayed_ = 0;
  bool keeps_logit_rows_ = false;  // whether rows are those whose logits are wanted
};

}  // namespace sluice
