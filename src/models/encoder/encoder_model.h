// Encoders: an embedding, then layers of bidirectional attention and an MLP, with norms before or
// after each sublayer.
#pragma once

#include <filesystem>
#include <memory>

#include "models/encoder/encoder_spec.h"
#include "models/model.h"

namespace sluice {

// Sets the cache's fields in `memory`, for any device. The cache contains keys and values of one
// layer, for the current step only.
void PlanEncoderCache(const EncoderSpec& spec, const ModelOptions& options, ModelMemory& memory);

// Returns the memory that loading will take.
Result<ModelMemory> PlanEncoder(const ModelConfig& config, const ModelOptions& options,
                                int num_threads);

// Loads the checkpoint in `folder`. Every slice of a step must be a whole sequence.
Result<std::unique_ptr<Model>> LoadEncoder(ThreadPool& pool, const std::filesystem::path& folder,
                                           ModelConfig config, const ModelOptions& options,
                                           const LoadProgress& progress);

}  // namespace sluice
