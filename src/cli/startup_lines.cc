#include "cli/startup_lines.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/log.h"
#include "cli/usage.h"
#include "cli/version.h"
#include "device/device.h"
#include "options/values.h"
#include "server/api/common/python_text.h"

namespace sluice::cli {
namespace {

using options::Assignment;
using options::Dialect;
using options::Note;
using options::Option;
using options::Settings;
using options::Type;

// Returns the option's name in Python code.
std::string PythonName(const Option& option) {
  std::string name(FlagName(option));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string PythonValue(const json::Value& value) {
  if (value.is_object()) {
    std::vector<std::string> members;
    for (const auto& [key, member] : value.as_object())
      members.push_back(fmt::format("{}: {}", PythonRepr(key), PythonValue(member)));
    return fmt::format("{{{}}}", fmt::join(members, ", "));
  }
  if (value.is_array()) {
    std::vector<std::string> items;
    for (const json::Value& item : value.as_array()) items.push_back(PythonValue(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  if (value.is_bool()) return value.as_bool() ? "True" : "False";
  if (value.is_null()) return "None";
  if (value.is_string()) return PythonRepr(value.as_string());
  return json::Write(value);
}

std::string PythonWords(const Option& option, const std::vector<std::string>& words) {
  if (option.secret) return "'***'";
  switch (option.type) {
    case Type::kFlag: return words[0] == "true" ? "True" : "False";
    case Type::kInteger:
    case Type::kSize:
    case Type::kNumber: return words[0];
    case Type::kStrings: return PythonRepr(std::span<const std::string>(words));
    case Type::kJson: {
      const auto value = json::Parse(words[0]);
      return value ? PythonValue(*value) : PythonRepr(words[0]);
    }
    case Type::kString:
    case Type::kChoice: return PythonRepr(words[0]);
  }
  return "";
}

bool IsDefault(const Assignment& given, Dialect dialect) {
  const std::string_view normal = DefaultOf(*given.option, dialect);
  if (normal.empty()) return false;
  const auto words = CheckWords(*given.option, {std::string(normal)});
  return words.has_value() && *words == given.words;
}

void AppendGroups(std::string_view head, const std::vector<OptionEffects::Group>& groups,
                  std::vector<std::string>& lines) {
  for (const auto& [reason, what] : groups)
    lines.push_back(fmt::format("  {:<10} {}: {}", head, fmt::join(what, ", "), reason));
}

size_t CountOf(const std::vector<OptionEffects::Group>& groups) {
  size_t count = 0;
  for (const auto& group : groups) count += group.what.size();
  return count;
}

}  // namespace

void UseLogStyleOf(Dialect dialect) {
  switch (dialect) {
    case Dialect::kVllm: SetLogStyle(LogStyle::kVllm); break;
    case Dialect::kTrtllm: SetLogStyle(LogStyle::kTrtllm); break;
    case Dialect::kSluice: break;
  }
}

std::string NonDefaultArguments(const Settings& settings) {
  std::vector<std::string> parts;
  if (!settings.positionals().empty()) {
    parts.push_back(fmt::format("'model_tag': {}", PythonRepr(settings.positionals()[0])));
    if (!settings.Given("model"))
      parts.push_back(fmt::format("'model': {}", PythonRepr(settings.positionals()[0])));
  }
  for (const Assignment* given : settings.given()) {
    if (IsDefault(*given, settings.dialect())) continue;
    parts.push_back(fmt::format("{}: {}", PythonRepr(PythonName(*given->option)),
                                PythonWords(*given->option, given->words)));
  }
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

std::vector<std::string> UnansweredLines(const OptionEffects& effects) {
  std::vector<std::string> lines;
  for (const auto& [reason, what] : effects.unanswered) {
    lines.push_back(fmt::format("{} {} no effect: {}", fmt::join(what, ", "),
                                what.size() == 1 ? "has" : "have", reason));
  }
  return lines;
}

std::vector<std::string> EffectBlock(const OptionEffects& effects) {
  const auto& [acting, mapped, unanswered, idle] = effects;
  std::vector<std::string> lines;
  const size_t num_idle = CountOf(unanswered) + CountOf(idle);
  if (acting.empty() && CountOf(mapped) + num_idle == 0) return lines;
  lines.push_back(
      fmt::format("options: {} have an effect, {} are mapped, {} have no effect (`sluice "
                  "explain-options` lists all options)",
                  acting.size(), CountOf(mapped), num_idle));
  if (!acting.empty()) lines.push_back(fmt::format("  {:<10} {}", "act", fmt::join(acting, ", ")));
  AppendGroups("mapped", mapped, lines);
  AppendGroups("no effect", idle, lines);
  return lines;
}

void LogStartup(const Settings& settings) {
  LOG_INFO("serve", "sluice {} (commit {})", Version(), Commit());
  if (settings.dialect() == Dialect::kVllm) {
    LOG_INFO("serve", "instead of vLLM: version {}", VersionIn(settings.dialect()));
    LOG_INFO("serve", "non-default args: {}", NonDefaultArguments(settings));
  }
  const OptionEffects effects = EffectsOf(settings);
  for (const std::string& line : EffectBlock(effects)) LOG_INFO("options", "{}", line);
  for (const std::string& line : UnansweredLines(effects)) LOG_WARNING("options", "{}", line);
  for (const Note& note : settings.notes()) {
    if (note.kind == Note::Kind::kWarning) LOG_WARNING("options", "{} {}", note.what, note.text);
  }
  if (const std::string devices = settings.TextOr("simulate"); !devices.empty())
    LOG_INFO("serve", "device: simulated ({})", devices);
  else if (settings.TextOr("device") == "auto" && !BuiltWithCuda() && !BuiltWithHip())
    LOG_INFO("serve", "device: cpu (this program was built without CUDA and HIP)");
}

}  // namespace sluice::cli
