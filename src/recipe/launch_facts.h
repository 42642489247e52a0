// What a launch command comes to: its options as this program takes them, its model, its memory.
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

// One option, variable or key of a launch and what becomes of it here.
struct OptionFact {
  std::string given;   // "--max-num-seqs 512", "VLLM_USE_V1=1", "cuda_graph_config.enable_padding"
  std::string effect;  // "acts", "mapped", "no effect", "refused", "retired", "warning"
  std::string text;
};

struct LaunchFacts {
  RecipeLaunch launch;
  std::string model;             // without a slash at its end; "" where none is given
  bool is_options_file = false;  // no launch stands there, only what one would read
  // Absent where the command line is wrong; then `error` says how.
  std::optional<options::Settings> settings;
  std::string error;
  std::vector<OptionFact> options;
  std::optional<StoredModel> stored;  // where the model's shape is known
  int64_t max_model_len = 0;          // as given, else the model's own; 0: unknown
  int64_t max_num_seqs = 0;
  int64_t max_num_batched_tokens = 0;
};

// Finds the shape of a model that is no published one; nothing if it cannot.
using ShapeFinder = std::function<std::optional<ModelShape>(const std::string& model_id)>;

// `files` are those the recipe shows, for --config; others are looked for beside `folder`.
LaunchFacts ExamineLaunch(const RecipeLaunch& launch, const RecipeCommands& commands,
                          const std::filesystem::path& folder, const ShapeFinder& find_shape);

// Bytes of cache that a launch leaves: of the share of --gpu-memory-utilization what the weights do
// not take, or for trtllm-serve its fraction of that. `fraction` stands in for the launch's own.
// REQUIRES: the model is known.
double KvCacheBytesOf(const LaunchFacts& facts, const Accelerator& accelerator,
                      std::optional<double> fraction = std::nullopt);

}  // namespace sluice
