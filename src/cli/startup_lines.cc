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
#include "server/api/python_text.h"

namespace sluice::cli {
namespace {

using options::Assignment;
using options::Dialect;
using options::Effect;
using options::Note;
using options::Option;
using options::Settings;
using options::Type;

// The name under which Python code knows an option.
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

// Texts and the items that they apply to, in the order of their first appearance.
class Groups {
 public:
  void Add(const std::string& text, std::string what) {
    auto place = std::find_if(groups_.begin(), groups_.end(),
                              [&](const auto& group) { return group.first == text; });
    if (place == groups_.end()) place = groups_.insert(place, {text, {}});
    place->second.push_back(std::move(what));
    ++count_;
  }
  void AppendLines(std::string_view head, std::vector<std::string>& lines) const {
    for (const auto& [text, what] : groups_)
      lines.push_back(fmt::format("  {:<10} {}: {}", head, fmt::join(what, ", "), text));
  }
  size_t count() const { return count_; }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> groups_;
  size_t count_ = 0;
};

// "--port 8080", "--no-x (config.yaml:3)".
std::string Shown(const Assignment& given, bool with_value) {
  const Option& option = *given.option;
  const bool flag = option.type == Type::kFlag;
  std::string text = given.origin;
  const bool from_flag = given.source == options::Source::kFlag;
  if (!from_flag)
    text = fmt::format("--{}{}", flag && given.words[0] != "true" ? "no-" : "", FlagName(option));
  if (with_value && !flag)
    text +=
        fmt::format(" {}", option.secret ? "***" : fmt::format("{}", fmt::join(given.words, " ")));
  if (!from_flag) text += fmt::format(" ({})", given.origin);
  return text;
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

std::vector<std::string> UnusedDevices(const Settings& settings) {
  // The sizes of groups of devices are one by default, and all have the same reason.
  const std::string_view reason = options::Find("ep-size").reason;
  std::vector<std::string> lines;
  for (const Assignment* given : settings.given()) {
    const Option& option = *given->option;
    if (option.effect != Effect::kNoEffect || option.reason != reason ||
        option.default_value != "1" || settings.Integer(option.name).value_or(1) <= 1) {
      continue;
    }
    lines.push_back(fmt::format("{} has no effect: {}", Shown(*given, true), reason));
  }
  return lines;
}

std::vector<std::string> EffectBlock(const Settings& settings) {
  std::vector<std::string> acting;
  Groups mapped;
  Groups without_effect;
  for (const Assignment* given : settings.given()) {
    const Option& option = *given->option;
    if (option.effect == Effect::kMapped) {
      mapped.Add(std::string(option.reason), Shown(*given, true));
    } else if (option.effect == Effect::kNoEffect) {
      std::string text(option.reason);
      if (!option.retired.empty()) text += fmt::format(" (retired {})", option.retired);
      without_effect.Add(text, Shown(*given, false));
    } else if (given->source != options::Source::kYamlOverFlags) {
      acting.push_back(Shown(*given, true));  // those of such a file have notes
    }
  }
  for (const Note& note : settings.notes()) {
    if (note.kind == Note::Kind::kMapped) mapped.Add(note.text, note.what);
    if (note.kind == Note::Kind::kNoEffect) without_effect.Add(note.text, note.what);
  }
  std::vector<std::string> lines;
  if (acting.empty() && mapped.count() + without_effect.count() == 0) return lines;
  lines.push_back(
      fmt::format("options: {} act, {} mapped, {} without effect here (`sluice "
                  "explain-options` lists all there are)",
                  acting.size(), mapped.count(), without_effect.count()));
  if (!acting.empty()) lines.push_back(fmt::format("  {:<10} {}", "act", fmt::join(acting, ", ")));
  mapped.AppendLines("mapped", lines);
  without_effect.AppendLines("no effect", lines);
  return lines;
}

void LogStartup(const Settings& settings) {
  LOG_INFO("serve", "sluice {} (commit {})", Version(), Commit());
  if (settings.dialect() == Dialect::kVllm) {
    LOG_INFO("serve", "in place of vLLM: version {}", VersionIn(settings.dialect()));
    LOG_INFO("serve", "non-default args: {}", NonDefaultArguments(settings));
  }
  for (const std::string& line : EffectBlock(settings)) LOG_INFO("options", "{}", line);
  for (const std::string& line : UnusedDevices(settings)) LOG_WARNING("options", "{}", line);
  for (const Note& note : settings.notes()) {
    if (note.kind == Note::Kind::kWarning) LOG_WARNING("options", "{} {}", note.what, note.text);
  }
  if (settings.TextOr("device") == "auto" && !BuiltWithCuda())
    LOG_INFO("serve", "device: cpu (this program was built without CUDA)");
}

}  // namespace sluice::cli
