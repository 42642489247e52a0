// The decoder of all families on the CPU: runs the program of a DecoderSpec or of one rank's share
// of it.
#pragma once

#include <memory>
#include <vector>

#include "models/cpu/executor.h"
#include "models/decoder_spec.h"
#include "models/input_rounding.h"
#include "models/lora_slots.h"
#include "models/model.h"
#include "models/shard.h"
#include "models/weights.h"

namespace sluice {

// The communicators of a rank; both are null if there is only one rank.
struct RankGroups {
  Communicator* all = nullptr;
  // Group of the ranks of this rank's stage; null if the stage has only this rank.
  Communicator* stage = nullptr;
};

// The adapters, and the rows of a step that use them. Models that share weights also share the
// adapters. Both are null if the model serves no adapters.
struct DecoderAdapters {
  std::shared_ptr<LoraSlots> slots;
  std::unique_ptr<LoraStep> step;
};

// Ownership: owns its workspace; shares weights and adapters with the models made by Share; the
// groups outlive it.
//
// With several ranks, all ranks call Begin and Finish in the same order with the same input, each
// with the cache of its share. Only rank 0 writes `results`, which may be null in the others. Both
// functions throw GroupError. With pipeline stages, Begin computes the layers of this stage, and as
// many steps may be in flight as there are stages; the first stage finishes a step with the rows
// that the last stage returns.
class DecoderModel final : public Model {
 public:
  // `rounding`: the largest InputRounding of any layer. `pool`: the threads for its steps.
  // `target`: for a drafting head, see DecoderParts::target.
  static Result<std::unique_ptr<DecoderModel>> Create(
      ModelConfig config, const ModelOptions& options, const RankPlace& place,
      const RankGroups& groups, std::shared_ptr<const DecoderWeights> weights,
      InputRounding rounding, const ThreadPool& pool, DecoderAdapters adapters = {},
      std::shared_ptr<const DecoderWeights> target = {});

  void PrepareThread(const ThreadPool& pool) override;
  void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache, float* results) override {
    Begin(pool, input, cache, results);
    Finish(pool);
  }
  int steps_in_flight() const override { return place_.num_stages; }
  // With several ranks, this rank has only a part of the results, or receives results later.
  bool finds_maxima() const override {
    return place_.is_alone() && config_.spec.head.kind == HeadSpec::Kind::kVocabulary;
  }
  void Begin(ThreadPool& pool, const StepInput& input, KvCache& cache, float* results) override;
  void Finish(ThreadPool& pool) override;
  std::shared_ptr<LoraStore> lora() override { return adapters_.slots; }
  Result<std::unique_ptr<Model>> Share(const ThreadPool& pool) const override {
    return ShareWith(pool, {});
  }
  // Like Share, for the rank at the same index in other groups.
  Result<std::unique_ptr<DecoderModel>> ShareWith(const ThreadPool& pool,
                                                  const RankGroups& groups) const;
  const DecoderWeights& weights() const { return *weights_; }
  // The largest InputRounding of any layer.
  InputRounding rounding() const { return rounding_; }
  const std::shared_ptr<const DecoderWeights>& shared_weights() const { return weights_; }

 private:
  // The remaining work of a step that has begun.
  struct Begun {
    float* results = nullptr;
    int64_t rows = 0;  // number of rows that the last stage returns
    // For each row: its slot or -1; empty if no slice has an adapter.
    std::vector<int32_t> adapters;
    // If the step returns all rows (ModelOptions::handed): the rows whose results are wanted.
    std::vector<int32_t> logit_rows;
    std::span<float> handed;
  };

  DecoderModel(ModelConfig config, const ModelOptions& options, const RankPlace& place,
               const RankGroups& groups, std::shared_ptr<const DecoderWeights> weights,
               InputRounding rounding, DecoderAdapters adapters,
               std::shared_ptr<const DecoderWeights> target, std::unique_ptr<TensorRanks> ranks,
               CpuExecutor executor);

  int NextRank() const {
    return (place_.stage + 1) % place_.num_stages * place_.tensor_size + place_.tensor_rank;
  }

  ModelOptions options_;
  RankPlace place_;
  RankGroups groups_;
  std::shared_ptr<const DecoderWeights> weights_;
  InputRounding rounding_;
  DecoderAdapters adapters_;
  std::shared_ptr<const DecoderWeights>
      target_;                          // for a drafting head: the weights of the target model
  std::unique_ptr<TensorRanks> ranks_;  // null: this rank computes whole layers
  CpuExecutor executor_;
  std::vector<int32_t> all_rows_;  // if stages return all rows: the numbers 0, 1, ... max_rows - 1
  std::vector<Begun> begun_;       // one entry per step in flight, used in turn
  int64_t num_begun_ = 0;          // number of steps that have begun
  int64_t num_finished_ = 0;
};

}  // namespace sluice
