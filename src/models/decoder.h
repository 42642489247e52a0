// The decoder that all families share: it computes what a DecoderSpec describes.
#pragma once

#include <memory>

#include "models/decoder_spec.h"
#include "models/layers/step.h"
#include "models/model.h"
#include "models/weights.h"
#include "models/workspace.h"

namespace sluice {

// Ownership: owns weights and workspace.
class DecoderModel final : public Model {
 public:
  DecoderModel(ModelConfig config, const ModelOptions& options, DecoderSpec spec,
               DecoderWeights weights, Workspace workspace)
      : Model(std::move(config)),
        options_(options),
        spec_(std::move(spec)),
        weights_(std::move(weights)),
        workspace_(std::move(workspace)) {}

  void PrepareThread(const ThreadPool& pool) override;
  void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache, float* logits) override;

 private:
  // Moves the rows whose logits are wanted to the front of `residual` and of `attended`, whose rows
  // hold `q_width` numbers of `type`.
  void KeepLogitRows(const StepInput& input, int64_t q_width, ElementType type);

  ModelOptions options_;
  DecoderSpec spec_;
  DecoderWeights weights_;
  Workspace workspace_;
};

}  // namespace sluice
