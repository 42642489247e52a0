// Reads a recipe and reports the effect of its commands, the memory that they need, and errors.
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
  // Names to check; empty: those in the recipe, or else all known ones.
  std::vector<std::string> accelerators;
  // For models that the table of published shapes does not contain.
  ShapeFinder find_shape;
  // null: an option that has an effect with some settings is assumed to have it.
  IdleFinder find_idle = {};
};

struct RecipeReport {
  std::filesystem::path path;
  std::vector<LaunchFacts> launches;
  std::vector<RecipeRequest> requests;
  std::vector<const Accelerator*> accelerators;  // the accelerators for which memory is estimated
  std::vector<Finding> findings;                 // sorted by severity, then by line
};

// Checks a recipe. `text`: the content of the file at `path`. kInvalidArgument for an unknown
// accelerator.
Result<RecipeReport> LintRecipe(const std::filesystem::path& path, std::string_view text,
                                const LintOptions& options);

std::string FormatReport(const RecipeReport& report);
json::Value ReportJson(const RecipeReport& report);

}  // namespace sluice
