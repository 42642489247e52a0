// Replaces the weights of a model of several ranks. All ranks switch between the same two steps.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "models/decoder.h"
#include "models/parallel_model.h"

namespace sluice {

// Part of the model of rank 0 (ParallelShare::stage). Thread safety: Stage, StageFrom and Drop are
// called by one thread at a time, while steps are computed.
class WeightStage {
 public:
  virtual ~WeightStage() = default;

  // Loads the shares of the checkpoint in `folder`, which has the same configuration, on separate
  // threads, while the old shares stay in use. An error names the rank; after an error, no rank has
  // staged weights.
  virtual Status Stage(const std::filesystem::path& folder) = 0;
  // Stages the weights that `loaded` has staged, in memory that both share. REQUIRES: both are
  // computed by threads, and have the same sizes.
  virtual Status StageFrom(const WeightStage& loaded) = 0;
  virtual void Drop() = 0;
  // Makes all ranks use the staged weights from the next step on and free the old weights. Called
  // by the thread that computes the steps, while no step is in flight; that thread then calls
  // PrepareThread of the model. REQUIRES: weights are staged. Throws GroupError.
  virtual void Switch() = 0;
};

// Loads the share of one rank on separate threads. `checkpoint`: as in LoadShare.
Result<std::unique_ptr<DecoderModel>> LoadShareBeside(
    const RankThreads& threads, const Checkpoint* checkpoint, const ModelConfig& config,
    const ModelOptions& options, const RankPlace& place, const RankGroups& groups);

}  // namespace sluice
