// What the commands of a recipe are for: servers that they launch, requests that they send.
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

// A server's launch on one way through the recipe.
struct RecipeLaunch {
  int line = 0;
  options::Dialect dialect = options::Dialect::kVllm;
  std::string program;             // "vllm serve"
  std::vector<std::string> words;  // after it
  std::map<std::string, std::string> environment;
  std::vector<std::string> conditions;  // when it is this way
};

enum class RequestKind { kCurl, kLmEval, kBench, kPython };

// Something that asks a server.
struct RecipeRequest {
  int line = 0;
  RequestKind kind = RequestKind::kCurl;
  std::string model;  // "" where it names none
  std::string host;
  int port = 0;  // 0 where it names none
  std::vector<std::string> conditions;
  // Of benches.
  std::optional<int64_t> input_len, output_len, num_prompts, max_concurrency;
};

struct RecipeCommands {
  std::vector<RecipeLaunch> launches;  // each once, however many ways lead to it
  std::vector<RecipeRequest> requests;
  std::map<std::string, std::string> files;  // shown or written: name to text
};

// All launches and requests of the document: those of its shell blocks on all ways through them, of
// scripts that these write, of services in YAML, of Python examples.
RecipeCommands FindCommands(const RecipeDocument& document, const ScriptRun& run);

}  // namespace sluice
