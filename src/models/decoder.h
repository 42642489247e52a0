// The decoder that all families share: it computes what a DecoderSpec describes, or a rank's share
// of it.
#pragma once

#include <memory>

#include "models/decoder_spec.h"
#include "models/layers/step.h"
#include "models/layers/tensor_ranks.h"
#include "models/lora_slots.h"
#include "models/model.h"
#include "models/shard.h"
#include "models/weights.h"
#include "models/workspace.h"

namespace sluice {

// The groups of a rank; both are null where it is alone.
struct RankGroups {
  Communicator* all = nullptr;
  Communicator* stage = nullptr;  // of the ranks of its stage; null where that is this one
};

// The adapters of a model and their rows of a step; both are null where it serves none.
struct DecoderAdapters {
  std::unique_ptr<LoraSlots> slots;
  std::unique_ptr<LoraStep> step;
};

// Ownership: owns its workspace and adapters, and the weights together with the models that share
// them; the groups outlive it.
//
// Of several ranks, Forward is called by all with the same input, each with the cache of its share;
// `logits` are written by rank 0 alone, and may be null elsewhere. Throws GroupError.
class DecoderModel final : public Model {
 public:
  DecoderModel(ModelConfig config, const ModelOptions& options, const RankPlace& place,
               const RankGroups& groups, std::shared_ptr<const DecoderWeights> weights,
               Workspace workspace, DecoderAdapters adapters = {});

  void PrepareThread(const ThreadPool& pool) override;
  void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache, float* results) override;
  LoraSlots* lora() override { return adapters_.slots.get(); }
  // Without adapters.
  Result<std::unique_ptr<Model>> Share(const ThreadPool& pool) const override {
    return ShareWith(pool, {});
  }
  // The same, as the rank at the same place of other groups.
  Result<std::unique_ptr<DecoderModel>> ShareWith(const ThreadPool& pool,
                                                  const RankGroups& groups) const;
  const DecoderWeights& weights() const { return weights_; }

 private:
  bool is_last_layer(size_t index) const {
    return place_.is_last_stage() && index + 1 == share_.layers.size();
  }

  // The residual of the step's tokens: of the embedding, or from the stage before.
  void Begin(const Step& step);
  // The layers of this stage. Returns the rows that are left, 0 when no logits are wanted.
  int64_t RunLayers(const Step& step, KvCache& cache);
  void RunAttention(const Step& step, size_t index, KvCache& cache, int64_t& rows);
  // Completes `delta` from the `own_delta` of the stage's ranks.
  void GatherDelta(const Step& step, int64_t rows);
  // Moves the rows whose logits are wanted to the front of `residual` and of `own_attended`, whose
  // rows hold `q_width` numbers of `type`.
  void KeepLogitRows(const Step& step, int64_t q_width, ElementType type);
  // Hands residual and delta, added, to the next stage; the last one's to the first.
  void PassOn(const Step& step, int64_t rows);
  void Receive(int64_t rows, int from_stage);
  // The final norm of the first `rows` rows, and what the head makes of them.
  void ComputeResults(const Step& step, int64_t rows, float* results);

  ModelOptions options_;
  RankPlace place_;
  RankGroups groups_;
  DecoderSpec spec_;   // of the whole model
  DecoderSpec share_;  // of this rank
  std::shared_ptr<const DecoderWeights> shared_weights_;
  const DecoderWeights& weights_ = *shared_weights_;
  Workspace workspace_;
  DecoderAdapters adapters_;
  TensorRanks ranks_;
  std::vector<int32_t> own_tokens_;  // of a step, those whose embeddings this rank has
};

}  // namespace sluice
