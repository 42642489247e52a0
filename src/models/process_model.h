// A model that several processes compute; each has one rank's share.
#pragma once

#include <chrono>
#include <memory>

#include "models/parallel_model.h"
#include "models/step_message.h"
#include "parallel/communicator.h"

namespace sluice {

// This process's part of a model. Ownership: owns the share and the cache; the communicator
// outlives it.
class RankProcessModel {
 public:
  // Collective: returns when every rank has loaded its share, or throws GroupError. `parallel`:
  // cache and sizes; its threads are not used. An error on this rank fails the group.
  static Result<std::unique_ptr<RankProcessModel>> Load(Communicator& all, ThreadPool& pool,
                                                        const std::filesystem::path& folder,
                                                        const ModelConfig& config,
                                                        const ModelOptions& options,
                                                        const ParallelOptions& parallel,
                                                        const LoadProgress& progress = {});
  virtual ~RankProcessModel() = default;

  // Call only at rank 0: returns the model for the engine. Its destruction ends the other ranks.
  virtual ParallelShare TakeLead() = 0;
  // Call at other ranks: computes steps until rank 0 ends. Throws GroupError.
  virtual void Follow() = 0;
};

}  // namespace sluice
