// One rank's share of a model: what it takes, and loading it.
#pragma once

#include <memory>
#include <optional>

#include "checkpoint/checkpoint.h"
#include "models/decoder.h"

namespace sluice {

// Checks the options, and opens the checkpoint and holds it against the model; none where the
// options ask for random weights.
Result<std::optional<Checkpoint>> OpenChecked(const std::filesystem::path& folder,
                                              const ModelConfig& config,
                                              const ModelOptions& options);

// Loads the rows of the checkpoint that the rank at `place` holds, and no others. `checkpoint`: of
// OpenChecked, null for random weights; several ranks may read it at the same time. `target`: of a
// drafting head, whose embedding and head it shares.
Result<std::unique_ptr<DecoderModel>> LoadShare(ThreadPool& pool, const Checkpoint* checkpoint,
                                                const ModelConfig& config,
                                                const ModelOptions& options, const RankPlace& place,
                                                const RankGroups& groups,
                                                const LoadProgress& progress,
                                                std::shared_ptr<const DecoderWeights> target = {});

}  // namespace sluice
