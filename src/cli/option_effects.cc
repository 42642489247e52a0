#include "cli/option_effects.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "cli/speculation_settings.h"
#include "device/device.h"
#include "options/dialect_table.h"
#include "options/values.h"

namespace sluice::cli {
namespace {

using options::Assignment;
using options::Effect;
using options::Note;
using options::Option;
using options::Settings;
using options::Type;
using Group = OptionEffects::Group;

// Groups are in the order of their first members.
void AddTo(std::vector<Group>& groups, const std::string& reason, std::string what) {
  auto place = std::ranges::find(groups, reason, &Group::reason);
  if (place == groups.end()) place = groups.insert(place, {reason, {}});
  place->what.push_back(std::move(what));
}

// Formats an assignment: "--port 8080" or "--no-x (config.yaml:3)".
std::string Shown(const Assignment& given) {
  const Option& option = *given.option;
  const bool flag = option.type == Type::kFlag;
  std::string text = given.origin;
  const bool from_flag = given.source == options::Source::kFlag;
  if (!from_flag)
    text = fmt::format("--{}{}", flag && given.words[0] != "true" ? "no-" : "", FlagName(option));
  if (!flag)
    text +=
        fmt::format(" {}", option.secret ? "***" : fmt::format("{}", fmt::join(given.words, " ")));
  if (!from_flag) text += fmt::format(" ({})", given.origin);
  return text;
}

bool Has(std::string_view words, std::string_view word) {
  const std::vector<std::string_view> all = options::Split(words, '|');
  return std::ranges::find(all, word) != all.end();
}

// Returns the reason why `option` has no effect because another option is missing; "" if its needs
// are met.
std::string UnmetNeed(const Settings& settings, const Option& option) {
  if (option.needs.empty()) return "";
  const std::string_view name = option.needs.substr(0, option.needs.find('='));
  const Option& needed = options::Find(name);
  if (needed.type == Type::kFlag) {
    return settings.Flag(name) ? "" : fmt::format("it needs --{}", FlagName(needed));
  }
  const std::string_view values =
      option.needs.substr(std::min(name.size() + 1, option.needs.size()));
  std::string value = settings.TextOr(name);
  if (values.empty()) return value.empty() ? fmt::format("it needs --{}", FlagName(needed)) : "";
  // Whether a device exists is determined later.
  if (name == "device" && value == "auto")
    value = BuiltWithCuda() ? "cuda" : BuiltWithHip() ? "hip" : "cpu";
  if (Has(values, value)) return "";
  // "cuda|hip|emulated" becomes "cuda, hip or emulated".
  std::string words(values);
  for (size_t bar; (bar = words.rfind('|')) != words.npos;)
    words.replace(bar, 1, words.find(" or ") == words.npos ? " or " : ", ");
  return fmt::format("it needs --{} {}", FlagName(needed), words);
}

// For an option with Option::keys: notes each key that has no effect. `acts`: whether any key has
// an effect.
void AddKeys(const Assignment& given, OptionEffects& effects, bool& acts) {
  const Option& option = *given.option;
  const auto object = json::Parse(given.words[0]);
  if (!object || !object->is_object()) return;
  acts = object->as_object().empty();
  for (const auto& [key, value] : object->as_object()) {
    if (Has(option.keys, key)) {
      acts = true;
      continue;
    }
    AddTo(options::AsksForSomething(value) ? effects.unanswered : effects.idle,
          std::string(option.reason), fmt::format("--{} {}", FlagName(option), key));
  }
}

void AddOption(const Settings& settings, const Assignment& given, OptionEffects& effects) {
  const Option& option = *given.option;
  const auto add_idle = [&](const std::string& reason, bool asks) {
    AddTo(asks ? effects.unanswered : effects.idle, reason, Shown(given));
  };
  const auto asks = [&] {
    return options::AsksForSomething(option, given.words, settings.dialect());
  };
  switch (option.effect) {
    case Effect::kMapped: return AddTo(effects.mapped, std::string(option.reason), Shown(given));
    case Effect::kNoEffect: {
      std::string reason(option.reason);
      if (!option.retired.empty()) reason += fmt::format(" (retired {})", option.retired);
      return add_idle(reason, asks());
    }
    case Effect::kRefused:  // this value is accepted, others are refused
      if (options::IsIdle(option, given.words)) return add_idle(std::string(option.reason), asks());
      break;
    case Effect::kActs: break;
  }
  if (given.source == options::Source::kYamlOverFlags)
    return;  // the keys of such a file have separate notes
  if (const std::string need = UnmetNeed(settings, option); !need.empty())
    return add_idle(need, asks());
  if (const std::string reason = UnknownSpeculation(settings, option); !reason.empty())
    return add_idle(reason, true);
  bool acts = option.name != "compilation-config";  // its keys have separate notes
  if (!option.keys.empty()) AddKeys(given, effects, acts);
  if (acts) effects.acting.push_back(Shown(given));
}

// Adds the note about a key of a file or of another option.
void AddNote(const Settings& settings, const Note& note, OptionEffects& effects) {
  if (note.kind == Note::Kind::kNoEffect)
    AddTo(note.asks ? effects.unanswered : effects.idle, note.text, note.what);
  if (note.kind != Note::Kind::kMapped) return;
  for (const Option& option : options::Table()) {
    if (note.text != fmt::format("--{}", FlagName(option))) continue;
    const std::string need = UnmetNeed(settings, option);
    if (need.empty()) break;
    const auto given = std::ranges::find(settings.assignments(), note.what, &Assignment::origin);
    const bool asks = given == settings.assignments().end() ||
                      options::AsksForSomething(option, given->words, settings.dialect());
    return AddTo(asks ? effects.unanswered : effects.idle, need,
                 fmt::format("{} ({})", note.what, note.text));
  }
  AddTo(effects.mapped, note.text, note.what);
}

}  // namespace

OptionEffects EffectsOf(const Settings& settings) {
  OptionEffects effects;
  for (const Assignment* given : settings.given()) AddOption(settings, *given, effects);
  for (const Note& note : settings.notes()) AddNote(settings, note, effects);
  return effects;
}

}  // namespace sluice::cli
