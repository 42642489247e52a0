// The commands of a recipe: servers that they launch, requests that they send.
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

// The launch of a server on one path through the recipe.
struct RecipeLaunch {
  int line = 0;
  options::Dialect dialect = options::Dialect::kVllm;
  std::string program;             // "vllm serve"
  std::vector<std::string> words;  // after it
  std::map<std::string, std::string> environment;
  std::vector<std::string> conditions;  // of the `if`s on this path
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
  // Settings of benchmarks.
  std::optional<int64_t> input_len, output_len, num_prompts, max_concurrency;
};

struct RecipeCommands {
  std::vector<RecipeLaunch> launches;  // without duplicates of different paths
  std::vector<RecipeRequest> requests;
  std::map<std::string, std::string> files;  // shown or written: name to text
};

// All launches and requests of the document: of its shell blocks on all paths, of scripts that
// these write, of services in YAML, of Python examples.
RecipeCommands FindCommands(const RecipeDocument& document, const ScriptRun& run);

}  // namespace sluice
