#include "options/help.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/ascii.h"
#include "options/compilation.h"
#include "options/trtllm_keys.h"
#include "options/values.h"
#include "options/variables.h"

namespace sluice::options {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kIndent = 6;

std::string Wrap(std::string_view text) {
  std::string result;
  size_t column = 0;
  for (std::string_view word : Split(text, ' ')) {
    if (column == 0 || column + 1 + word.size() > kColumns) {
      if (column != 0) result += '\n';
      result += std::string(kIndent, ' ');
      column = kIndent;
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
  if (option.type == Type::kChoice) return fmt::format("--{} {}", FlagName(option), option.choices);
  std::string value = AsciiLower(TypeName(option.type));
  if (option.type == Type::kStrings) value = "text...";
  return fmt::format("--{} <{}>", FlagName(option), value);
}

bool Matches(const Option& option, std::string_view filter) {
  const std::string wanted = AsciiLower(filter);
  return wanted.empty() || wanted == "all" ||
         AsciiLower(option.group).find(wanted) != std::string::npos ||
         option.name.find(wanted) != std::string_view::npos;
}

std::string FullHelp(const Option& option) {
  std::string text(option.help);
  if (!option.no_effect.empty()) text += fmt::format(" No effect: {}.", option.no_effect);
  if (!option.mapped_to.empty()) text += fmt::format(" Mapped to {}.", option.mapped_to);
  if (!option.refuses.empty() && option.default_value.empty()) {
    text += fmt::format(" Refused: {}.", option.refuses);
  } else if (!option.refuses.empty()) {
    text += fmt::format(" Other values than {} are refused: {}.",
                        option.words.empty() ? option.default_value : option.words, option.refuses);
  }
  if (!option.retired.empty()) text += fmt::format(" Retired: {}.", option.retired);
  if (option.dialects == DialectBit(Dialect::kTrtllm)) text += " (trtllm-serve only)";
  return text;
}

constexpr std::pair<Command, std::string_view> kCommandNames[] = {
    {kServe, "serve"},
    {kChat, "chat"},
    {kComplete, "complete"},
    {kInspect, "inspect"},
    {kDoctor, "doctor"},
    {kBenchLatency, "bench latency"},
    {kBenchThroughput, "bench throughput"},
    {kTokenize, "tokenize"},
    {kRender, "render"},
    {kVersion, "version"},
    {kBenchServe, "bench serve"},
    {kBenchSweep, "bench sweep"},
    {kRunBatch, "run-batch"},
    {kCollectEnv, "collect-env"},
    {kExplainOptions, "explain-options"},
    {kEval, "eval"},
    {kRecipe, "recipe"},
    {kQuantize, "quantize"},
    {kDiff, "diff"},
    {kSelftest, "selftest"},
    {kKernelBench, "kernel-bench"},
};

std::string CommandsOf(const Option& option) {
  if (option.commands == kAllCommands) return "all";
  std::string result;
  for (const auto& [command, name] : kCommandNames) {
    if ((option.commands & command) != 0)
      result += (result.empty() ? "" : ", ") + std::string(name);
  }
  return result;
}

std::string Escape(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '|' || c == '<') result += '\\';
    result += c;
  }
  return result;
}

std::string VariablesOf(const Option& option) {
  std::string name = "SLUICE_";
  for (char c : option.name)
    name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  std::string result = "`" + name + "`";
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

std::string KeysMarkdown() {
  std::string result =
      "\n## Keys of --compilation-config\n\nvLLM's compiler settings, by their new and old names. "
      "An "
      "unknown key is told and left out.\n\n| key | earlier name | what it does here "
      "|\n|---|---|---|\n";
  for (const CompilationKey& key : CompilationKeys()) {
    result += fmt::format("| `{}` | {} | no effect: {} |\n", key.key,
                          key.old.empty() ? "" : fmt::format("`{}`", key.old), key.here);
  }
  result +=
      "\n## Keys of trtllm-serve's YAML file\n\nOf `--extra_llm_api_options`, which is also "
      "`--config`, and of `--set key=value`. They win over flags, as there. An unknown key is an "
      "error that names its path.\n\n| key | what it does here |\n|---|---|\n";
  for (const TrtllmKey& key : TrtllmKeys()) {
    if (!key.option.empty()) {
      result += fmt::format("| `{}` | as `--{}` |\n", key.path, FlagName(Find(key.option)));
    } else if (!key.refuses.empty()) {
      result += fmt::format("| `{}` | refused: {} |\n", key.path, key.refuses);
    } else if (!key.here.empty()) {
      result += fmt::format("| `{}` | no effect: {} |\n", key.path, key.here);
    }
  }
  return result;
}

std::string VariablesMarkdown() {
  std::string result =
      "\n## Environment variables of others\n\nA name that ends in `*` stands for all that begin "
      "so; "
      "a line above it goes first. A `VLLM_` variable that is not here is told at start, and "
      "refused "
      "with `--fail-on-environ-validation`.\n\n| variable | what it does here |\n|---|---|\n";
  for (const Variable& variable : Variables()) {
    result += fmt::format("| `{}` | {}{} |\n", variable.name,
                          variable.acts ? "" : "no effect: ", variable.here);
  }
  return result;
}

}  // namespace

std::string OptionHelp(uint32_t command, std::string_view filter) {
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
    result += "  " + FlagOf(option);
    for (std::string_view alias : Split(option.aliases, '|')) result += fmt::format(", {}", alias);
    if (!option.default_value.empty()) result += fmt::format("  [{}]", option.default_value);
    result += "\n" + Wrap(FullHelp(option));
  }
  return result;
}

std::string OptionsMarkdown() {
  std::string result =
      "# Options\n\n"
      "Made by `sluice help --markdown` from the table in `src/options/`; `make docs` writes this "
      "page.\n\n"
      "Every option can be a flag, a key of the YAML file that `--config` names, or an environment "
      "variable. A flag wins "
      "over the environment, the environment over the file, the file over the default. In names, "
      "`_` and `-` are the "
      "same. Whole numbers may be written `4096`, `25.6k` (powers of 1000), `64K` (powers of "
      "1024), `16GiB`, `1e3`. A "
      "JSON option also takes `@file`, and single keys as `--option.key value`. `None` stands for "
      "\"not given\".\n";
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
                    VariablesOf(option), CommandsOf(option), Escape(FullHelp(option)));
  }
  return result + KeysMarkdown() + VariablesMarkdown();
}

}  // namespace sluice::options
