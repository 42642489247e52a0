// Analyzes a launch command: the effect of its options, its model and its memory.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "options/settings.h"
#include "planner/accelerators.h"
#include "planner/estimate.h"
#include "recipe/recipe_commands.h"

namespace sluice {

// The effect of an option, environment variable or key of a launch.
struct OptionFact {
  std::string given;   // "--max-num-seqs 512", "VLLM_USE_V1=1", "cuda_graph_config.enable_padding"
  std::string effect;  // "acts", "mapped", "no effect", "refused", "retired", "warning"
  std::string text;
};

struct LaunchFacts {
  RecipeLaunch launch;
  std::string model;             // without a trailing slash; "" if not given
  bool is_options_file = false;  // whether `launch` was made up to check an options file
  // nullopt if the command line is wrong. In that case `errors` has a message for each wrong
  // option.
  std::optional<options::Settings> settings;
  std::vector<std::string> errors;
  std::vector<OptionFact> options;
  std::optional<StoredModel> stored;  // known if the model's shape is
  int64_t max_model_len = 0;          // the configured length, or else the model's own; 0: unknown
  int64_t max_num_seqs = 0;
  int64_t max_num_batched_tokens = 0;
  // Number of accelerators per copy of the model (tensor times pipeline parallel), and number of
  // copies (data parallel).
  int64_t devices_each = 1, copies = 1;
};

// Finds the shape of a model that is not in the table of published models. Returns nullopt if the
// shape is not found.
using ShapeFinder = std::function<std::optional<ModelShape>(const std::string& model_id)>;

// Returns "" if an option has an effect with these settings. If it has an effect only with other
// settings, returns the reason.
using IdleFinder =
    std::function<std::string(const options::Settings& settings, const options::Option& option)>;

// Analyzes a launch. Finds files for --config among those that the recipe shows, then in `folder`.
LaunchFacts ExamineLaunch(const RecipeLaunch& launch, const RecipeCommands& commands,
                          const std::filesystem::path& folder, const ShapeFinder& find_shape,
                          const IdleFinder& find_idle);

// Returns the accelerators that one copy of the model needs, combined into one.
Accelerator DevicesOf(const LaunchFacts& facts, const Accelerator& accelerator);
// Returns, for example, "one H100", "4 H100", "8 H100 (2 copies on 4 each)".
std::string DevicesText(const LaunchFacts& facts, const Accelerator& accelerator);

// Returns the number of bytes for the KV cache of one copy of the model: the memory that
// --gpu-memory-utilization allows, minus the weights. For trtllm-serve, the configured fraction of
// the memory that the weights leave. `fraction` replaces the launch's fraction. REQUIRES: the model
// is known.
double KvCacheBytesOf(const LaunchFacts& facts, const Accelerator& accelerator,
                      std::optional<double> fraction = std::nullopt);

}  // namespace sluice
