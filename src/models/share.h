// Loads one rank's share of a model, and plans its memory.
#pragma once

#include <memory>
#include <optional>

#include "checkpoint/checkpoint.h"
#include "models/decoder.h"

namespace sluice {

// Checks the options, opens the checkpoint and checks it against the model. Returns nullopt if the
// options request random weights.
Result<std::optional<Checkpoint>> OpenChecked(const std::filesystem::path& folder,
                                              const ModelConfig& config,
                                              const ModelOptions& options);

// Loads only the checkpoint rows of the rank at `place`. `checkpoint`: result of OpenChecked; null
// for random weights. Several ranks may read it concurrently. `target`: for a drafting head, the
// weights whose embedding and head it shares.
Result<std::unique_ptr<DecoderModel>> LoadShare(ThreadPool& pool, const Checkpoint* checkpoint,
                                                const ModelConfig& config,
                                                const ModelOptions& options, const RankPlace& place,
                                                const RankGroups& groups,
                                                const LoadProgress& progress,
                                                std::shared_ptr<const DecoderWeights> target = {});

}  // namespace sluice
