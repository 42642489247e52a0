#include "recipe/lint.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice {
namespace {

constexpr uint64_t kMaxBytes = 4 << 20;

bool HasWord(const std::string& text, std::string_view word) {
  const auto inside = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !inside(text[at - 1])) && (end == text.size() || !inside(text[end])))
      return true;
  }
  return false;
}

bool Mentions(const RecipeDocument& document, std::string_view word) {
  return std::any_of(document.prose.begin(), document.prose.end(),
                     [&](const ProseLine& line) { return HasWord(line.text, word); });
}

// Returns the accelerators that a recipe names. If it names only a family, returns the family's
// members.
std::vector<const Accelerator*> NamedAccelerators(const RecipeDocument& document) {
  static const std::map<std::string_view, std::vector<std::string_view>> kFamilies = {
      {"Hopper", {"H100", "H200"}}, {"Blackwell", {"B200", "GB10"}}};
  std::vector<const Accelerator*> named;
  for (const Accelerator& accelerator : Accelerators()) {
    bool found = Mentions(document, accelerator.name);
    for (std::string_view rest = accelerator.names; !rest.empty() && !found;) {
      const size_t bar = std::min(rest.find('|'), rest.size());
      found = Mentions(document, rest.substr(0, bar));
      rest.remove_prefix(std::min(bar + 1, rest.size()));
    }
    if (found) named.push_back(&accelerator);
  }
  for (const auto& [family, members] : kFamilies) {
    const bool known = std::any_of(members.begin(), members.end(), [&](std::string_view member) {
      return std::find(named.begin(), named.end(), FindAccelerator(member)) != named.end();
    });
    if (known || !Mentions(document, family)) continue;
    for (std::string_view member : members) named.push_back(FindAccelerator(member));
  }
  return named;
}

Result<std::vector<const Accelerator*>> GivenAccelerators(const std::vector<std::string>& names) {
  std::vector<const Accelerator*> given;
  for (const std::string& name : names) {
    const Accelerator* accelerator = FindAccelerator(name);
    if (accelerator == nullptr) {
      std::vector<std::string_view> known;
      for (const Accelerator& each : Accelerators()) known.push_back(each.name);
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--accelerator: expected one of {}, found {}", fmt::join(known, ", "), name),
          "accelerator");
    }
    given.push_back(accelerator);
  }
  return given;
}

// Removes the accelerators that a launch's `if` on the compute capability excludes.
std::vector<const Accelerator*> ForLaunch(const LaunchFacts& launch,
                                          std::vector<const Accelerator*> all) {
  for (const std::string& condition : launch.launch.conditions) {
    const bool negated = condition.starts_with("not: ");
    for (const Accelerator& accelerator : Accelerators()) {
      if (accelerator.compute_capability.empty()) continue;
      if (!HasWord(condition, accelerator.compute_capability)) continue;
      std::erase_if(all, [&](const Accelerator* each) {
        return (each->compute_capability == accelerator.compute_capability) == negated;
      });
      break;
    }
  }
  return all;
}

// Returns the launch that would use an options file, in the dialect that knows its keys.
std::vector<LaunchFacts> LaunchOfOptionsFile(const RecipeDocument& document,
                                             const RecipeCommands& commands,
                                             const LintOptions& options) {
  if (document.is_markdown || document.blocks[0].kind != BlockKind::kYaml) return {};
  const std::string& name = document.blocks[0].title;
  RecipeLaunch launch;
  launch.line = 1;
  launch.program = "vllm serve";
  launch.words = {"--config", name};
  const auto folder = document.path.parent_path();
  LaunchFacts facts =
      ExamineLaunch(launch, commands, folder, options.find_shape, options.find_idle);
  if (!facts.settings) {
    launch.dialect = options::Dialect::kTrtllm;
    launch.program = "trtllm-serve";
    LaunchFacts other =
        ExamineLaunch(launch, commands, folder, options.find_shape, options.find_idle);
    if (other.settings) facts = std::move(other);
  }
  facts.is_options_file = true;
  return {std::move(facts)};
}

}  // namespace

Result<RecipeReport> LintRecipe(const std::filesystem::path& path, std::string_view text,
                                const LintOptions& options) {
  if (text.size() > kMaxBytes) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: expected at most {} bytes, found {}",
                                                         path.string(), kMaxBytes, text.size()));
  }
  const RecipeDocument document = ParseRecipe(path, text);
  std::vector<ShellScript> scripts;
  for (const RecipeBlock& block : document.blocks) {
    if (block.kind == BlockKind::kShell) scripts.push_back(ReadShellScript(block.text, block.line));
  }
  const ScriptRun run = RunScripts(scripts);
  const RecipeCommands commands = FindCommands(document, run);

  RecipeReport report;
  report.path = path;
  report.requests = commands.requests;
  for (const RecipeLaunch& launch : commands.launches) {
    report.launches.push_back(
        ExamineLaunch(launch, commands, path.parent_path(), options.find_shape, options.find_idle));
  }
  if (report.launches.empty()) report.launches = LaunchOfOptionsFile(document, commands, options);
  ASSIGN_OR_RETURN(report.accelerators, GivenAccelerators(options.accelerators));
  std::vector<const Accelerator*> judged = report.accelerators;
  if (judged.empty()) judged = NamedAccelerators(document);
  report.accelerators = judged;
  if (report.accelerators.empty()) {
    for (const Accelerator& accelerator : Accelerators())
      report.accelerators.push_back(&accelerator);
  }

  const auto facts_of = [&](const std::vector<LaunchFacts>& launches,
                            const std::vector<const Accelerator*>& accelerators) {
    return RecipeFacts{document, scripts, run, commands, launches, accelerators};
  };
  const RecipeFacts facts = facts_of(report.launches, judged);
  CheckShell(facts, report.findings);
  CheckNames(facts, report.findings);
  CheckClaims(facts, report.findings);
  CheckFiles(facts, report.findings);
  for (const LaunchFacts& launch : report.launches) {
    const std::vector<LaunchFacts> one = {launch};
    const auto accelerators = ForLaunch(launch, judged);
    const RecipeFacts part = facts_of(one, accelerators);
    CheckLaunches(part, report.findings);
    CheckWorkloads(part, report.findings);
  }
  // If paths differ only in details that no rule checks, they have duplicate findings.
  std::stable_sort(
      report.findings.begin(), report.findings.end(), [](const Finding& a, const Finding& b) {
        return std::tie(a.severity, a.line, a.text) < std::tie(b.severity, b.line, b.text);
      });
  const auto same = [](const Finding& a, const Finding& b) {
    return a.line == b.line && a.text == b.text;
  };
  report.findings.erase(std::unique(report.findings.begin(), report.findings.end(), same),
                        report.findings.end());
  return report;
}

}  // namespace sluice
