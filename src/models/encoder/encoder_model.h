// Encoders: embedding, layers of bidirectional attention and an MLP with norms after or before
// both.
#pragma once

#include <filesystem>
#include <memory>

#include "models/encoder/encoder_spec.h"
#include "models/model.h"

namespace sluice {

// Sets the fields of `memory` for the cache, on any device: it holds the keys and values of one
// layer, for the current step only.
void PlanEncoderCache(const EncoderSpec& spec, const ModelOptions& options, ModelMemory& memory);

// What loading will take.
Result<ModelMemory> PlanEncoder(const ModelConfig& config, const ModelOptions& options,
                                int num_threads);

// Loads the checkpoint in `folder`. Every slice of a step has to be a whole sequence.
Result<std::unique_ptr<Model>> LoadEncoder(ThreadPool& pool, const std::filesystem::path& folder,
                                           ModelConfig config, const ModelOptions& options,
                                           const LoadProgress& progress);

}  // namespace sluice
