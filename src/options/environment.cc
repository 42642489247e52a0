#include <unistd.h>

#include <string_view>

#include <fmt/format.h>

#include "base/json.h"
#include "options/sources.h"
#include "options/values.h"

namespace sluice::options {
namespace {

// Translates the value of another program's variable to the value of `option`.
std::string Translate(const Option& option, std::string_view variable, const std::string& value) {
  if (option.name == "log-level" && (value == "WARN" || value == "warn")) return "warning";
  if (variable == "VLLM_CPU_KVCACHE_SPACE") return value + "GiB";
  return value;
}

// SLUICE_<NAME> comes last, so that it overrides the others.
std::vector<std::string> VariablesOf(const Option& option) {
  std::vector<std::string> variables;
  for (std::string_view name : Split(option.environment, '|')) variables.emplace_back(name);
  variables.push_back(VariableOf(option));
  return variables;
}

}  // namespace

Result<std::vector<Assignment>> ReadEnvironment(
    const std::map<std::string, std::string>& environment, Commands commands) {
  std::vector<Assignment> result;
  for (const Option& option : Table()) {
    if ((option.commands & commands) == 0) continue;
    for (const std::string& variable : VariablesOf(option)) {
      const auto found = environment.find(variable);
      if (found == environment.end() || found->second.empty()) continue;
      auto words = CheckWords(option, {Translate(option, variable, found->second)});
      if (!words) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("environment {}: {}", variable, words.error().message), variable);
      }
      result.push_back({&option, *std::move(words), Source::kEnvironment, variable});
    }
  }
  return result;
}

std::vector<std::string> SecretVariables() {
  std::vector<std::string> result;
  for (const Option& option : Table()) {
    if (!option.secret) continue;
    for (std::string& variable : VariablesOf(option)) result.push_back(std::move(variable));
  }
  return result;
}

std::map<std::string, std::string> SecretFlags(const Settings& settings) {
  std::map<std::string, std::string> result;
  for (const Assignment* given : settings.given()) {
    if (!given->option->secret || given->source != Source::kFlag || given->words.empty()) continue;
    std::string value = given->words[0];
    if (given->option->type == Type::kStrings) {
      json::Value::Array words;
      for (const std::string& word : given->words) words.emplace_back(word);
      value = json::Write(json::Value(std::move(words)));
    }
    result[VariableOf(*given->option)] = std::move(value);
  }
  return result;
}

std::map<std::string, std::string> ProcessEnvironment() {
  std::map<std::string, std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

}  // namespace sluice::options
