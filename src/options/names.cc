#include "options/names.h"

#include <algorithm>

#include <fmt/format.h>

#include "options/values.h"

namespace sluice::options {

std::string Fold(std::string_view flag) {
  std::string folded(flag);
  std::replace(folded.begin(), folded.end(), '_', '-');
  return folded;
}

Names::Names(Commands commands, Dialect dialect) {
  for (const Option& option : Table()) {
    if ((option.commands & commands) == 0) continue;
    if ((option.dialects & DialectBit(dialect)) == 0) continue;
    std::vector<std::string> flags = {"--" + std::string(FlagName(option))};
    for (std::string_view alias : Split(option.aliases, '|')) flags.emplace_back(alias);
    if (dialect == Dialect::kTrtllm) {
      for (std::string_view alias : Split(option.trtllm, '|')) flags.push_back(Fold(alias));
    }
    for (const std::string& flag : flags) {
      spellings_.push_back({flag, {&option, false}});
      all_.push_back(flag);
      if (option.type == Type::kFlag && flag.starts_with("--")) {
        spellings_.push_back({"--no-" + flag.substr(2), {&option, true}});
      }
    }
  }
}

std::string TakenFor(std::string_view flag, const Option& option) {
  const std::string folded = Fold(flag);
  if (!folded.starts_with("--")) return "";
  std::vector<std::string> names = {"--" + std::string(FlagName(option)),
                                    "--no-" + std::string(FlagName(option))};
  for (std::string_view alias : Split(option.aliases, '|')) {
    names.emplace_back(alias);
    if (alias.starts_with("--")) names.push_back("--no-" + std::string(alias.substr(2)));
  }
  for (std::string_view alias : Split(option.trtllm, '|')) names.push_back(Fold(alias));
  std::string taken;
  for (const std::string& name : names) {
    if (name == folded) return "";
    if (taken.empty() && name.starts_with(folded)) taken = name;
  }
  return taken.empty() ? "" : fmt::format("{} was taken for {}", flag, taken);
}

std::optional<Spelling> Names::Lookup(std::string_view flag, bool abbreviations) const {
  const std::string folded = Fold(flag);
  for (const auto& [spelling, target] : spellings_) {
    if (spelling == folded) return target;
  }
  if (!abbreviations || !folded.starts_with("--") || folded.size() < 4) return std::nullopt;
  std::optional<Spelling> found;
  for (const auto& [spelling, target] : spellings_) {
    if (!spelling.starts_with(folded)) continue;
    if (found && (found->option != target.option || found->negated != target.negated))
      return std::nullopt;
    found = target;
  }
  return found;
}

std::vector<std::string> Names::Completions(std::string_view flag) const {
  const std::string folded = Fold(flag);
  std::vector<std::string> result;
  for (const auto& [spelling, target] : spellings_) {
    if (spelling.starts_with(folded)) result.push_back(spelling);
  }
  return result;
}

}  // namespace sluice::options
