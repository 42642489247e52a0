// Rules that find errors in a recipe.
#pragma once

#include <string>
#include <vector>

#include "recipe/launch_facts.h"
#include "recipe/recipe_commands.h"
#include "recipe/recipe_document.h"
#include "recipe/shell_run.h"

namespace sluice {

inline constexpr double kGB = 1e9;

enum class Severity { kError, kWarning, kNote };

std::string_view SeverityName(Severity severity);

struct Finding {
  Severity severity = Severity::kNote;
  int line = 0;
  std::string rule;  // "early-expansion"
  std::string text;  // the error, its reason and how to fix it, as one text
};

// The input of the rules.
struct RecipeFacts {
  const RecipeDocument& document;
  const std::vector<ShellScript>& scripts;
  const ScriptRun& run;
  const RecipeCommands& commands;
  const std::vector<LaunchFacts>& launches;
  const std::vector<const Accelerator*>& accelerators;  // accelerators of the recipe
};

// Each function appends the findings of one group of rules.
void CheckShell(const RecipeFacts& facts, std::vector<Finding>& findings);      // rules_shell.cc
void CheckNames(const RecipeFacts& facts, std::vector<Finding>& findings);      // rules_names.cc
void CheckFiles(const RecipeFacts& facts, std::vector<Finding>& findings);      // rules_files.cc
void CheckLaunches(const RecipeFacts& facts, std::vector<Finding>& findings);   // rules_launch.cc
void CheckWorkloads(const RecipeFacts& facts, std::vector<Finding>& findings);  // rules_workload.cc
void CheckClaims(const RecipeFacts& facts, std::vector<Finding>& findings);     // rules_claims.cc

}  // namespace sluice
