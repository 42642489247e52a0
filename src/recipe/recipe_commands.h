// Finds the commands of a recipe: the servers it launches and the requests it sends.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "options/option.h"
#include "recipe/recipe_document.h"
#include "recipe/shell_run.h"

namespace sluice {

// A launch of a server on one path through the recipe.
struct RecipeLaunch {
  int line = 0;
  options::Dialect dialect = options::Dialect::kVllm;
  std::string program;             // "vllm serve"
  std::vector<std::string> words;  // its arguments
  std::map<std::string, std::string> environment;
  std::vector<std::string> conditions;  // the `if` conditions on this path
};

enum class RequestKind { kCurl, kLmEval, kBench, kPython };

// A command that sends requests to a server.
struct RecipeRequest {
  int line = 0;
  RequestKind kind = RequestKind::kCurl;
  std::string model;  // "" if not given
  std::string host;
  int port = 0;  // 0 if not given
  std::vector<std::string> conditions;
  // Settings of a benchmark.
  std::optional<int64_t> input_len, output_len, num_prompts, max_concurrency;
};

struct RecipeCommands {
  std::vector<RecipeLaunch> launches;  // without duplicates from different paths
  std::vector<RecipeRequest> requests;
  std::map<std::string, std::string> files;  // files that the recipe shows or writes: name to text
};

// Finds all launches and requests of the document: in its shell blocks on all paths, in scripts
// that those blocks write, in YAML services, and in Python examples.
RecipeCommands FindCommands(const RecipeDocument& document, const ScriptRun& run);

}  // namespace sluice
