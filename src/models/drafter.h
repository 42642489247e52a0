// Drafting heads (drafter_spec.h): what their files say, and loading them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/scheme.h"
#include "models/model.h"
#include "models/model_config.h"

namespace sluice {

// A head: the decoder of its layers, and what is around them.
struct DrafterConfig {
  ModelConfig model;
  DrafterSpec head;
};

// Whether config.json is that of an EAGLE-3 head: by its architecture, or as speculators writes it.
bool IsEagle3Config(const json::Value& config);

// The EAGLE-3 head in `folder` for `target`, whose folder is `target_folder`. Reads config.json and
// the names and vocabulary map of the tensors; without `has_weights` config.json alone. An error
// names both sides where the head was made for another model.
Result<DrafterConfig> LoadEagle3Config(const std::filesystem::path& folder,
                                       const ModelConfig& target,
                                       const std::filesystem::path& target_folder,
                                       const LoadQuantization& quantization, bool has_weights);

// The layers of `target`'s own checkpoint that propose tokens. kUnsupported for a model of which
// none are known, kInvalidArgument for one that has none.
Result<DrafterConfig> LoadMtpConfig(const ModelConfig& target,
                                    const std::filesystem::path& target_folder, bool has_weights);

// Loads the head of options.drafter. It shares the target's embedding and head where it has none of
// its own, so `target` is to be a whole decoder on the CPU (else kUnsupported); it need not outlive
// the head. The model takes StepInput::hidden, and its vocabulary is that of
// DrafterSpec::num_outputs.
Result<std::unique_ptr<Model>> LoadDrafter(ThreadPool& pool, const std::filesystem::path& folder,
                                           const ModelConfig& config, const ModelOptions& options,
                                           const Model& target);

}  // namespace sluice
