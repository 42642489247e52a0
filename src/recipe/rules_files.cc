// Checks files that a recipe shows: unreadable YAML, and services that Compose would not find.
#include <yaml-cpp/yaml.h>

#include <fmt/format.h>

#include "recipe/findings.h"

namespace sluice {

// In a Compose file, services must be under `services`.
void CheckFiles(const RecipeFacts& facts, std::vector<Finding>& findings) {
  for (const RecipeBlock& block : facts.document.blocks) {
    if (block.kind != BlockKind::kYaml) continue;
    std::vector<YAML::Node> documents;
    try {
      documents = YAML::LoadAll(block.text);
    } catch (const YAML::Exception& problem) {
      findings.push_back({Severity::kError, block.line + problem.mark.line, "yaml", problem.msg});
      continue;
    }
    for (const YAML::Node& root : documents) {
      if (!root.IsMap() || root["services"]) continue;
      for (const auto& item : root) {
        if (!item.second.IsMap() || !item.second["image"]) continue;
        findings.push_back(
            {Severity::kWarning, block.line, "compose",
             fmt::format("{} is a service, and docker compose looks for services under a "
                         "`services:` key: put that above it",
                         item.first.Scalar())});
      }
    }
  }
}

}  // namespace sluice
