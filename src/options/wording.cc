#include "options/wording.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "options/names.h"
#include "options/suggest.h"
#include "options/values.h"

namespace sluice::options {
namespace {

// Options whose value vLLM reads by a function of its own, with that function's name: it appears in
// its errors.
constexpr std::string_view kHumanIntegers[] = {"max-num-batched-tokens",
                                               "safetensors-prefetch-block-size"};
constexpr std::string_view kNullableNumbers[] = {
    "max-log-len",
    "grpc-port",
    "num-gpu-blocks-override",
    "kv-cache-memory-bytes",
    "max-num-queued-reqs",
    "max-num-queued-tokens",
    "max-num-scheduled-tokens",
    "max-num-active-seqs",
    "mamba-block-size",
    "prefix-match-unit",
    "kv-offloading-size",
    "video-pruning-rate",
    "max-cpu-loras",
    "max-parallel-loading-workers",
    "distributed-timeout-seconds",
    "cpu-distributed-timeout-seconds",
    "prefix-cache-retention-interval",
    "max-lora-cls-labels",
};

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// argparse names an option by all its spellings.
std::string Spellings(const Option& option) {
  std::string text = fmt::format("--{}", FlagName(option));
  if (option.type == Type::kFlag) text += fmt::format("/--no-{}", FlagName(option));
  for (std::string_view alias : Split(option.aliases, '|')) text += fmt::format("/{}", alias);
  return text;
}

std::string PythonType(const Option& option) {
  return option.type == Type::kNumber ? "float" : "int";
}

std::string VllmBadValue(const Option& option, const std::string& word, const std::string& reason) {
  switch (option.type) {
    case Type::kInteger:
    case Type::kSize:
    case Type::kNumber: {
      const bool number = PythonType(option) == "float" ? ParseNumber(word).has_value()
                                                        : ParseInteger(word).has_value();
      if (number) return reason;  // out of range: vLLM finds out later, in many ways
      if (Contains(kNullableNumbers, option.name))
        return fmt::format("Value {} cannot be converted to <class '{}'>.", word,
                           PythonType(option));
      std::string type = PythonType(option);
      if (option.name == "max-model-len") type = "human_readable_int_or_auto";
      if (Contains(kHumanIntegers, option.name)) type = "human_readable_int";
      return fmt::format("invalid {} value: '{}'", type, word);
    }
    case Type::kChoice: {
      std::vector<std::string> choices;
      for (std::string_view choice : Split(option.choices, '|'))
        choices.push_back(fmt::format("'{}'", choice));
      std::sort(choices.begin(), choices.end());
      return fmt::format("invalid choice: '{}' (choose from {})", word, fmt::join(choices, ", "));
    }
    case Type::kJson: return fmt::format("invalid loads value: '{}'", word);
    default: return reason;
  }
}

}  // namespace

std::string BadValue(Dialect dialect, const Option& option, std::string_view flag,
                     std::span<const std::string> words, const std::string& reason) {
  const std::string word = words.empty() ? "" : words[0];
  switch (dialect) {
    case Dialect::kVllm:
      return fmt::format("argument {}: {}", Spellings(option), VllmBadValue(option, word, reason));
    case Dialect::kTrtllm: return fmt::format("Invalid value for '{}': {}", flag, reason);
    case Dialect::kSluice: break;
  }
  return fmt::format("{}: {}", flag, reason);
}

std::string MissingValue(Dialect dialect, const Option& option, std::string_view flag) {
  switch (dialect) {
    case Dialect::kVllm:
      return fmt::format("argument {}: expected {}", Spellings(option),
                         option.type == Type::kStrings ? "at least one argument" : "one argument");
    case Dialect::kTrtllm: return fmt::format("Option '{}' requires an argument.", flag);
    case Dialect::kSluice: break;
  }
  return fmt::format("{} expects a value ({})", flag, TypeName(option.type));
}

std::string Ambiguous(Dialect dialect, std::string_view flag,
                      std::span<const std::string> completions) {
  if (dialect == Dialect::kVllm)
    return fmt::format("ambiguous option: {} could match {}", flag, fmt::join(completions, ", "));
  return fmt::format("{} may mean {}", flag, fmt::join(completions, ", "));
}

std::string UnknownFlags(Dialect dialect, std::span<const std::string> unknown,
                         std::span<const std::string> rest, std::span<const std::string> known) {
  std::string hint;
  for (const std::string& flag : unknown) {
    const std::string name = Fold(flag.substr(0, flag.find('=')));
    const std::string near = DidYouMean(name, known);
    if (!near.empty())
      hint += fmt::format("{}{} is unknown{}", hint.empty() ? "" : "; ", name, near);
  }
  switch (dialect) {
    case Dialect::kVllm: {
      std::string text = fmt::format("unrecognized arguments: {}", fmt::join(unknown, " "));
      if (!rest.empty()) text += fmt::format(" {}", fmt::join(rest, " "));
      return hint.empty() ? text : text + "\n" + hint;
    }
    case Dialect::kTrtllm:
      return fmt::format("No such option: {}{}", unknown[0], DidYouMean(Fold(unknown[0]), known));
    case Dialect::kSluice: break;
  }
  return fmt::format("unknown option {}{}", unknown[0], DidYouMean(Fold(unknown[0]), known));
}

}  // namespace sluice::options
