// Reads a recipe and reports the effect of its commands, the memory they need, and errors.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "recipe/findings.h"
#include "recipe/launch_facts.h"

namespace sluice {

struct LintOptions {
  std::vector<std::string> accelerators;  // names; empty: the recipe's, else all known
  ShapeFinder find_shape;                 // for models without a published shape in the table
  IdleFinder find_idle = {};              // null: options that act with some settings act
};

struct RecipeReport {
  std::filesystem::path path;
  std::vector<LaunchFacts> launches;
  std::vector<RecipeRequest> requests;
  std::vector<const Accelerator*> accelerators;  // accelerators for which memory is estimated
  std::vector<Finding> findings;                 // by severity, then by line
};

// `text`: the content of the file at `path`. kInvalidArgument for an unknown accelerator.
Result<RecipeReport> LintRecipe(const std::filesystem::path& path, std::string_view text,
                                const LintOptions& options);

std::string FormatReport(const RecipeReport& report);
json::Value ReportJson(const RecipeReport& report);

}  // namespace sluice
