#include "cli/explain_options.h"
#include "cli/command.h"

#include <fmt/format.h>

#include "options/compilation.h"
#include "options/trtllm_keys.h"
#include "options/values.h"
#include "options/variables.h"

namespace sluice::cli {
namespace {

using options::Dialect;
using options::DialectBit;
using options::Option;

constexpr std::string_view kKeys = "key of --compilation-config";
constexpr std::string_view kYaml = "key of trtllm-serve's YAML file";
constexpr std::string_view kVariable = "environment";

std::string DialectsOf(uint32_t dialects) {
  std::string text;
  const std::pair<Dialect, std::string_view> all[] = {
      {Dialect::kSluice, "sluice"}, {Dialect::kVllm, "vllm"}, {Dialect::kTrtllm, "trtllm"}};
  for (const auto& [dialect, name] : all) {
    if ((dialects & DialectBit(dialect)) != 0)
      text += (text.empty() ? "" : " ") + std::string(name);
  }
  return text;
}

Explanation OfOption(const Option& option) {
  Explanation result;
  result.what = fmt::format("--{}", FlagName(option));
  for (std::string_view alias : options::Split(option.aliases, '|'))
    result.what += fmt::format(" {}", alias);
  for (std::string_view alias : options::Split(option.trtllm, '|'))
    result.what += fmt::format(" {}", alias);
  result.kind = "option";
  result.dialects = DialectsOf(option.dialects);
  if (!option.no_effect.empty()) {
    result.effect = "no effect";
    result.text = option.no_effect;
  } else if (!option.mapped_to.empty()) {
    result.effect = "mapped";
    result.text = fmt::format("to {}", option.mapped_to);
  } else if (!option.refuses.empty()) {
    result.effect = "refused";
    result.text = option.refuses;
    std::string taken(option.default_value);
    if (!option.words.empty()) taken = option.words;
    if (option.type == options::Type::kFlag) taken.clear();
    if (!taken.empty()) result.text += fmt::format(" ({} is taken)", taken);
  } else {
    result.effect = "acts";
    result.text = option.help;
  }
  if (!option.retired.empty())
    result.text += fmt::format(" (retired by its inventor: {})", option.retired);
  return result;
}

// A refused option still acts where its usual values are taken.
void AddOptions(std::vector<Explanation>& all) {
  for (const Option& option : options::Table()) all.push_back(OfOption(option));
}

void AddVariables(std::vector<Explanation>& all) {
  for (const options::Variable& variable : options::Variables()) {
    all.push_back({std::string(variable.name), kVariable, DialectsOf(options::kAllDialects),
                   variable.acts ? "acts" : "no effect", std::string(variable.here)});
  }
}

void AddKeys(std::vector<Explanation>& all) {
  for (const options::CompilationKey& key : options::CompilationKeys()) {
    std::string what(key.key);
    if (!key.old.empty()) what += fmt::format(" {}", key.old);
    all.push_back({std::move(what), kKeys, "sluice vllm", "no effect", std::string(key.here)});
  }
  for (const options::TrtllmKey& key : options::TrtllmKeys()) {
    Explanation row{std::string(key.path), kYaml, "trtllm", "no effect", std::string(key.here)};
    if (!key.refuses.empty()) {
      row.effect = "refused";
      row.text = key.refuses;
    } else if (!key.option.empty()) {
      row.effect = "mapped";
      row.text = fmt::format("to --{}", FlagName(options::Find(key.option)));
    } else if (key.here.empty()) {
      continue;  // a parent of others
    }
    all.push_back(std::move(row));
  }
}

bool Mentions(const Explanation& row, const std::string& word) {
  return word.empty() || row.what.find(word) != std::string::npos ||
         row.text.find(word) != std::string::npos || row.effect == word;
}

}  // namespace

std::vector<Explanation> ExplainOptions() {
  std::vector<Explanation> all;
  AddOptions(all);
  AddKeys(all);
  AddVariables(all);
  return all;
}

Result<int> RunExplainOptions(const options::Settings& settings) {
  const std::string word = settings.positionals().empty() ? "" : settings.positionals()[0];
  std::string dialect = settings.TextOr("dialect");
  if (dialect == "all") dialect.clear();
  std::vector<Explanation> rows;
  for (Explanation& row : ExplainOptions()) {
    if (Mentions(row, word) && row.dialects.find(dialect) != std::string::npos)
      rows.push_back(std::move(row));
  }
  if (settings.Flag("json")) {
    json::Value::Array array;
    for (const Explanation& row : rows) {
      json::Value object{json::Value::Object{}};
      object.Set("what", json::Value(row.what));
      object.Set("kind", json::Value(row.kind));
      object.Set("dialects", json::Value(row.dialects));
      object.Set("effect", json::Value(row.effect));
      object.Set("text", json::Value(row.text));
      array.push_back(std::move(object));
    }
    fmt::print("{}\n", json::Write(json::Value(std::move(array))));
    return 0;
  }
  std::string_view kind;
  for (const Explanation& row : rows) {
    if (row.kind != kind) {
      kind = row.kind;
      fmt::print("\n{}:\n", kind);
    }
    fmt::print("  {:<46} {:<10} {}{}\n", row.what, row.effect, row.text,
               row.dialects == "trtllm" && row.kind == "option" ? " [trtllm-serve]" : "");
  }
  if (rows.empty()) fmt::print("nothing is about '{}'\n", word);
  return 0;
}

}  // namespace sluice::cli
