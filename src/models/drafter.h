// Drafting heads (drafter_spec.h): reads their configuration and loads them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/scheme.h"
#include "models/model.h"
#include "models/model_config.h"

namespace sluice {

// A drafting head: a decoder that consists of its layers, and the modules around these layers.
struct DrafterConfig {
  ModelConfig model;
  DrafterSpec head;
};

// Returns whether this is the config.json of an EAGLE-3 head, which is recognized by its
// architecture or by the format of the speculators library.
bool IsEagle3Config(const json::Value& config);

// Reads the head of EAGLE-3 or EAGLE-1 in `folder` for `target`, whose folder is `target_folder`:
// config.json, tensor names and the vocabulary map; without `has_weights` it reads only
// config.json. If the head was made for another model, the error states the values of both models
// that differ.
Result<DrafterConfig> LoadEagleConfig(const std::filesystem::path& folder,
                                      const ModelConfig& target,
                                      const std::filesystem::path& target_folder,
                                      const LoadQuantization& quantization, bool has_weights);

// Reads the DFlash drafter in `folder` for `target`, like LoadEagleConfig.
Result<DrafterConfig> LoadDflashConfig(const std::filesystem::path& folder,
                                       const ModelConfig& target,
                                       const std::filesystem::path& target_folder,
                                       const LoadQuantization& quantization, bool has_weights);

// Describes the draft (MTP) layer in the checkpoint of `target`. kUnsupported if this program
// implements none for the model; kInvalidArgument if the checkpoint has none.
Result<DrafterConfig> LoadMtpConfig(const ModelConfig& target,
                                    const std::filesystem::path& target_folder, bool has_weights);

// Loads the head of options.drafter. If the head has no embedding or output head of its own, it
// shares those of `target`, which need not outlive the head. If several ranks compute the target,
// the head loads copies from `target_folder`. The model reads StepInput::hidden; its vocabulary has
// DrafterSpec::num_outputs tokens.
Result<std::unique_ptr<Model>> LoadDrafter(ThreadPool& pool, const std::filesystem::path& folder,
                                           const ModelConfig& config, const ModelOptions& options,
                                           const Model& target,
                                           const std::filesystem::path& target_folder);

// Opens the checkpoint of the head of options.drafter and checks its tensors. Returns nullopt if
// the options request random weights.
Result<std::optional<Checkpoint>> OpenDrafter(const std::filesystem::path& folder,
                                              const ModelConfig& config,
                                              const ModelOptions& options);

// Returns the bytes of the copies that LoadDrafter loads if several ranks compute the target.
int64_t CopiedTableBytes(const ModelConfig& target, const DrafterSpec& head, ElementType type);

}  // namespace sluice
