#include "options/help.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "options/dialect_table.h"
#include "options/values.h"

namespace sluice::options {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kIndent = 6;

// `first`: the indentation of the first line.
std::string Wrap(std::string_view text, size_t first = kIndent) {
  std::string result;
  size_t column = 0;
  for (std::string_view word : Split(text, ' ')) {
    if (column == 0 || column + 1 + word.size() > kColumns) {
      const size_t indent = column == 0 ? first : kIndent;
      if (column != 0) result += '\n';
      result += std::string(indent, ' ');
      column = indent;
    } else {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
  }
  return result + "\n";
}

std::string FlagOf(const Option& option) {
  if (option.type == Type::kFlag) return fmt::format("--{0}, --no-{0}", FlagName(option));
  if (option.type == Type::kChoice) {
    std::string choices;  // separated by blanks, so that long lists can wrap
    for (std::string_view choice : Split(option.choices, '|'))
      choices += fmt::format("{}{}", choices.empty() ? "" : " | ", choice);
    return fmt::format("--{} {}", FlagName(option), choices);
  }
  std::string value = AsciiLower(TypeName(option.type));
  if (option.type == Type::kStrings) value = "text...";
  return fmt::format("--{} <{}>", FlagName(option), value);
}

bool Matches(const Option& option, std::string_view filter) {
  const std::string wanted = AsciiLower(filter);
  return wanted.empty() || wanted == "all" ||
         AsciiLower(option.group).find(wanted) != std::string::npos ||
         option.name.find(wanted) != std::string_view::npos ||
         FlagName(option).find(wanted) != std::string_view::npos;
}

// Returns the help text of `option`, including its effect.
std::string FullHelp(const Option& option) {
  std::string text(option.help);
  switch (option.effect) {
    case Effect::kActs: break;
    case Effect::kMapped: text += fmt::format(" Mapped to {}.", option.reason); break;
    case Effect::kNoEffect: text += fmt::format(" No effect: {}.", option.reason); break;
    case Effect::kRefused:
      text += option.default_value.empty()
                  ? fmt::format(" Refused: {}.", option.reason)
                  : fmt::format(" Values other than {} are refused: {}.",
                                option.words.empty() ? option.default_value : option.words,
                                option.reason);
      break;
  }
  if (!option.retired.empty()) text += fmt::format(" Retired {}.", option.retired);
  if (option.dialects == DialectBit(Dialect::kTrtllm)) text += " (trtllm-serve only)";
  return text;
}

std::string CommandsOf(const Option& option) {
  if (option.commands == kAllCommands) return "all";
  std::vector<std::string_view> names;
  for (size_t i = 0; i < CommandNames().size(); ++i) {
    if ((option.commands >> i & 1) != 0) names.push_back(CommandNames()[i]);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string Escape(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '|' || c == '<') result += '\\';
    result += c;
  }
  return result;
}

std::string VariablesMarkdown(const Option& option) {
  std::string result = fmt::format("`{}`", VariableOf(option));
  for (std::string_view further : Split(option.environment, '|'))
    result += fmt::format(" `{}`", further);
  return result;
}

std::string FlagsMarkdown(const Option& option) {
  std::string result = option.type == Type::kFlag
                           ? fmt::format("`--{0}` `--no-{0}`", FlagName(option))
                           : fmt::format("`--{}`", FlagName(option));
  for (std::string_view alias : Split(option.aliases, '|')) result += fmt::format(" `{}`", alias);
  for (std::string_view alias : Split(option.trtllm, '|'))
    result += fmt::format(" `{}` (trtllm-serve)", alias);
  return result;
}

std::string EffectMarkdown(const DialectKey& key) {
  if (key.effect == Effect::kActs) return std::string(key.text);
  if (key.effect == Effect::kMapped) return fmt::format("as `--{}`", FlagName(Find(key.text)));
  return fmt::format("{}: {}", EffectName(key.effect), key.text);
}

std::string KeysMarkdown() {
  std::string result =
      "\n## Keys of --compilation-config\n\nvLLM's compiler settings. Unknown keys are logged and "
      "ignored.\n\n| key | earlier name | what it does here |\n|---|---|---|\n";
  for (const DialectKey& key : Dialects().compilation_keys) {
    result += fmt::format("| `{}` | {} | {} |\n", key.name,
                          key.earlier.empty() ? "" : fmt::format("`{}`", key.earlier),
                          EffectMarkdown(key));
  }
  result +=
      "\n## Keys of trtllm-serve's YAML file\n\nThese keys are used in the file of "
      "`--extra_llm_api_options` (also `--config`), and with `--set key=value`. They override "
      "flags. An unknown key is an error; the message names its path.\n\n| key | what it does here "
      "|\n|---|---|\n";
  for (const DialectKey& key : Dialects().yaml_keys)
    result += fmt::format("| `{}` | {} |\n", key.name, EffectMarkdown(key));
  result +=
      "\n## Environment variables of other programs\n\n`*` matches any ending; if several names "
      "match a variable, the longest applies. An unlisted `VLLM_` variable is logged at start; "
      "with `--fail-on-environ-validation`, it is an error.\n\n| variable | what it does here "
      "|\n|---|---|\n";
  for (const DialectKey& key : Dialects().variables)
    result += fmt::format("| `{}` | {} |\n", key.name, EffectMarkdown(key));
  return result;
}

}  // namespace

std::string OptionHelp(Commands command, std::string_view filter) {
  std::string result;
  std::string_view group;
  if (filter == "listgroup") {
    for (const Option& option : Table()) {
      if ((option.commands & command) == 0 || option.group == group) continue;
      group = option.group;
      result += fmt::format("  --help=\"{}\"\n", group);
    }
    return result;
  }
  for (const Option& option : Table()) {
    if ((option.commands & command) == 0 || !Matches(option, filter)) continue;
    if (option.group != group) {
      group = option.group;
      result += fmt::format("\n{}:\n", group);
    }
    std::string flags = FlagOf(option);
    for (std::string_view alias : Split(option.aliases, '|')) flags += fmt::format(", {}", alias);
    if (!option.default_value.empty()) flags += fmt::format(" [{}]", option.default_value);
    result += Wrap(flags, 2) + Wrap(FullHelp(option));
  }
  return result;
}

std::string OptionsMarkdown() {
  std::string result =
      "# Options\n\nGenerated by `make docs` (`sluice help --markdown`) from the table in "
      "`src/options/`.\n\nEvery option can be given as a flag, as a key of the YAML file of "
      "`--config`, or as an environment variable. Flags override the environment, the environment "
      "overrides the file, and the file overrides defaults. In names, `_` and `-` are equivalent. "
      "Integers may be written as `4096`, `25.6k` (powers of 1000), `64K` (powers of 1024), "
      "`16GiB` or `1e3`. The value of a JSON option may also be `@file`, or be given key by key as "
      "`--option.key value`. `None` means \"not given\".\n";
  std::string_view group;
  for (const Option& option : Table()) {
    if (option.group != group) {
      group = option.group;
      result += fmt::format(
          "\n## {}\n\n| option | type | default | environment | commands | what it does here |\n"
          "|---|---|---|---|---|---|\n",
          group);
    }
    std::string type(TypeName(option.type));
    if (option.type == Type::kChoice) type = Escape(option.choices);
    result +=
        fmt::format("| {} | {} | {} | {} | {} | {} |\n", FlagsMarkdown(option), type,
                    option.default_value.empty() ? "" : fmt::format("`{}`", option.default_value),
                    VariablesMarkdown(option), CommandsOf(option), Escape(FullHelp(option)));
  }
  return result + KeysMarkdown();
}

}  // namespace sluice::options
