#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/mistral_format.h"
#include "cli/command.h"
#include "cli/speculation_settings.h"
#include "hub/resolve.h"
#include "recipe/lint.h"

namespace sluice::cli {
namespace {

constexpr int kExitFound = 1;

// Returns the shape of a model in a folder or in the cache.
std::optional<ModelShape> ShapeOfLocalModel(const std::string& model_id) {
  const auto resolved = ResolveModel(ResolveOptions{.argument = model_id});
  if (!resolved) return std::nullopt;
  const auto config = ReadModelConfig(resolved->folder);
  if (!config) return std::nullopt;
  auto shape = ShapeOfConfig(*config, model_id);
  if (!shape) return std::nullopt;
  return *std::move(shape);
}

}  // namespace

Result<int> RunRecipeLint(const options::Settings& settings) {
  if (settings.positionals().empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "which recipe? Give a file: Markdown, a shell script, a launch command or YAML",
                "file");
  }
  const std::string& path = settings.positionals()[0];
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, uint64_t{4} << 20));
  LintOptions options;
  options.accelerators = settings.List("accelerator");
  options.find_shape = ShapeOfLocalModel;
  options.find_idle = UnknownSpeculation;
  ASSIGN_OR_RETURN(const RecipeReport report, LintRecipe(path, text, options));
  if (settings.Flag("lint-json")) {
    fmt::print("{}\n", json::Write(ReportJson(report)));
  } else {
    fmt::print("{}", FormatReport(report));
  }
  const Severity least = settings.Flag("lint-strict") ? Severity::kWarning : Severity::kError;
  const bool wrong = std::any_of(report.findings.begin(), report.findings.end(),
                                 [&](const Finding& finding) { return finding.severity <= least; });
  return wrong ? kExitFound : 0;
}

}  // namespace sluice::cli
