// Reads a recipe and says what its commands do here, what they need, and what it gets wrong.
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
  std::vector<std::string> accelerators;  // names; empty: those of the recipe, else all known
  ShapeFinder find_shape;                 // for models that are no published ones
};

struct RecipeReport {
  std::filesystem::path path;
  std::vector<LaunchFacts> launches;
  std::vector<RecipeRequest> requests;
  std::vector<const Accelerator*> accelerators;  // that memory is worked out for
  std::vector<Finding> findings;                 // by severity, then by line
};

// `text` is what the file at `path` holds. kInvalidArgument for an unknown accelerator.
Result<RecipeReport> LintRecipe(const std::filesystem::path& path, std::string_view text,
                                const LintOptions& options);

std::string FormatReport(const RecipeReport& report);
json::Value ReportJson(const RecipeReport& report);

}  // namespace sluice
