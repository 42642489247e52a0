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
#include "models/stage_rows.h"
#include "models/weights.h"
#include "models/workspace.h"

namespace sluice {

// The groups of a rank; both are null where it is alone.
struct RankGroups {
  Communicator* all = nullptr;
  Communicator* stage = nullptr;  // of the ranks of its stage; null where that is this one
};

// The adapters of a model, which models that share its weights have together, and their rows of a
// step; both are null where it serves none.
struct DecoderAdapters {
  std::shared_ptr<LoraSlots> slots;
  std::unique_ptr<LoraStep> step;
};

// Ownership: owns its workspace and adapters, and the weights together with the models that share
// them; the groups outlive it.
//
// Of several ranks, Begin and Finish are called by all in the same order with the same input, each
// with the cache of its share; `logits` are written by rank 0 alone, and may be null elsewhere.
// They throw GroupError. Where layers are divided into stages, Begin computes those of this one,
// and as many steps may be in flight as there are stages; the first stage finishes a step with what
// the last one hands back.
class DecoderModel final : public Model {
 public:
  DecoderModel(ModelConfig config, const ModelOptions& options, const RankPlace& place,
               const RankGroups& groups, std::shared_ptr<const DecoderWeights> weights,
               Workspace workspace, DecoderAdapters adapters = {});

  void PrepareThread(const ThreadPool& pool) override;
  void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache, float* results) override {
    Begin(pool, input, cache, results);
    Finish(pool);
  }
  int steps_in_flight() const override { return place_.num_stages; }
  // Of several ranks the results are in parts, or come later.
  bool finds_maxima() const override {
    return ranks_.is_alone() && place_.num_stages == 1 &&
           spec_.head.kind == HeadSpec::Kind::kVocabulary;
  }
  void Begin(ThreadPool& pool, const StepInput& input, KvCache& cache, float* results) override;
  void Finish(ThreadPool& pool) override;
  std::shared_ptr<LoraStore> lora() override { return adapters_.slots; }
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

  // What is left to do of a step that has begun.
  struct Begun {
    float* results = nullptr;
    int64_t rows = 0;               // of results
    std::vector<int32_t> adapters;  // by row: slot or -1; empty where no slice has one
  };

  Step StepOf(ThreadPool& pool, const StepInput& input);
  // The residual of the step's tokens: of the embedding, or from the stage before.
  void Enter(const Step& step);
  // The embeddings of words that the stage's ranks have divided.
  void EmbedTogether(const Step& step);
  // The layers of this stage. Returns the rows that are left, 0 when no logits are wanted.
  int64_t RunLayers(const Step& step, KvCache& cache);
  void RunAttention(const Step& step, size_t index, KvCache& cache, int64_t& rows);
  // Completes `delta` from the `own_delta` of the stage's ranks.
  void GatherDelta(const Step& step, int64_t rows) {
    if (step.ranks != nullptr) ranks_.GatherHidden(step, rows, workspace_.delta());
  }
  // Where the residual's message has the keys and the values of a layer, [rows, 2, width].
  float* HandedKeys(const StageRows::Keys& keys, int64_t rows) {
    return workspace_.residual() + rows * keys.first;
  }
  // The embeddings in layers of the step's rows: of all layers, or those that were received.
  LayerEmbeddingRows EmbeddingsInLayers(int64_t rows);
  // Puts into the message to the next stage what it needs of this one, besides the residual.
  void HandEmbeddings(const Step& step);
  void HandKeys(const Step& step, int64_t layer, const AttentionSpec& spec);
  // Appends the keys and the values of earlier stages to which layers of this one attend.
  void AppendReceived(const Step& step, KvCache& cache);
  LayerCache CacheOf(const Step& step, size_t index, KvCache& cache) const;
  // Moves the rows whose logits are wanted to the front of `residual` and of `own_attended`, whose
  // rows hold `q_width` numbers of `type`.
  void KeepLogitRows(const Step& step, int64_t q_width, ElementType type);
  // Hands residual and delta, added, to the next stage, with what else it needs; the last one's to
  // the first, which hears of every step that it is done, with or without rows.
  void PassOn(const Step& step, int64_t rows);
  // Rows of `width` numbers.
  void Receive(int64_t rows, int64_t width, int from_stage);
  int NextRank() const {
    return (place_.stage + 1) % place_.num_stages * place_.tensor_size + place_.tensor_rank;
  }
  // The final norm of the first `rows` rows, and what the head makes of them.
  void ComputeResults(const Step& step, int64_t rows, float* results);

  ModelOptions options_;
  RankPlace place_;
  RankGroups groups_;
  DecoderSpec spec_;   // of the whole model
  DecoderSpec share_;  // of this rank
  int64_t first_layer_;
  StageRows stage_rows_;
  std::shared_ptr<const DecoderWeights> shared_weights_;
  const DecoderWeights& weights_ = *shared_weights_;
  Workspace workspace_;
  DecoderAdapters adapters_;
  TensorRanks ranks_;
  std::vector<Begun> begun_;  // by step, used in turn
  int64_t num_begun_ = 0;     // steps
  int64_t num_finished_ = 0;
};

}  // namespace sluice
