#include "cli/explain_options.h"
#include "cli/command.h"

#include <fmt/format.h>

#include "options/dialect_table.h"
#include "options/values.h"

namespace sluice::cli {
namespace {

using options::Dialect;
using options::DialectBit;
using options::Effect;
using options::Option;

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
  result.effect = EffectName(option.effect);
  switch (option.effect) {
    case Effect::kActs: result.text = option.help; break;
    case Effect::kMapped: result.text = fmt::format("to {}", option.reason); break;
    case Effect::kNoEffect: result.text = option.reason; break;
    case Effect::kRefused: {
      result.text = option.reason;
      std::string_view accepted = option.words.empty() ? option.default_value : option.words;
      if (!accepted.empty() && option.type != options::Type::kFlag)
        result.text += fmt::format(" ({} is accepted)", accepted);
      break;
    }
  }
  if (!option.retired.empty()) result.text += fmt::format(" (retired {})", option.retired);
  return result;
}

void AddKeys(std::span<const options::DialectKey> keys, std::string_view kind,
             std::string_view dialects, std::vector<Explanation>& all) {
  for (const options::DialectKey& key : keys) {
    Explanation row{std::string(key.name), kind, std::string(dialects),
                    std::string(EffectName(key.effect)), std::string(key.text)};
    if (!key.earlier.empty()) row.what += fmt::format(" {}", key.earlier);
    if (key.effect == Effect::kMapped)
      row.text = fmt::format("to --{}", FlagName(options::Find(key.text)));
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
  for (const Option& option : options::Table()) all.push_back(OfOption(option));
  const options::DialectTable& dialects = options::Dialects();
  AddKeys(dialects.compilation_keys, "key of --compilation-config", "sluice vllm", all);
  AddKeys(dialects.yaml_keys, "key of trtllm-serve's YAML file", "trtllm", all);
  AddKeys(dialects.variables, "environment", DialectsOf(options::kAllDialects), all);
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
  if (rows.empty()) fmt::print("no option, key or variable matches '{}'\n", word);
  return 0;
}

}  // namespace sluice::cli
