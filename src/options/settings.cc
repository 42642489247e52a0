#include "options/settings.h"

#include <utility>

#include "base/check.h"
#include "options/values.h"

namespace sluice::options {

Settings::Settings(const std::vector<Assignment>& assignments, std::vector<std::string> positionals,
                   Dialect dialect)
    : assignments_(assignments), positionals_(std::move(positionals)), dialect_(dialect) {
  for (const Assignment& assignment : assignments) {
    auto [place, fresh] = values_.try_emplace(assignment.option->name, assignment);
    if (fresh || assignment.source < place->second.source) continue;
    const bool append = assignment.option->type == Type::kStrings &&
                        assignment.source == Source::kFlag &&
                        place->second.source == Source::kFlag && !assignment.words.empty();
    if (append) {
      auto& words = place->second.words;
      words.insert(words.end(), assignment.words.begin(), assignment.words.end());
    } else {
      place->second = assignment;
    }
  }
}

bool Settings::Given(std::string_view name) const {
  const auto found = values_.find(Find(name).name);
  return found != values_.end() && !found->second.words.empty();
}

std::vector<std::string> Settings::Words(std::string_view name) const {
  const Option& option = Find(name);
  if (Given(name)) return values_.at(option.name).words;
  const std::string_view otherwise = DefaultOf(option, dialect_);
  if (otherwise.empty()) return {};
  auto words = CheckWords(option, {std::string(otherwise)});
  CHECK(words.has_value(), "default of --{}: {}", name, words.error().message);
  return *std::move(words);
}

std::optional<std::string> Settings::Text(std::string_view name) const {
  const Option& option = Find(name);
  CHECK(option.type == Type::kString || option.type == Type::kChoice || option.type == Type::kJson,
        "--{}", name);
  const auto words = Words(name);
  if (words.empty()) return std::nullopt;
  return words[0];
}

std::string Settings::TextOr(std::string_view name, std::string_view otherwise) const {
  return Text(name).value_or(std::string(otherwise));
}

std::optional<int64_t> Settings::Integer(std::string_view name) const {
  const Option& option = Find(name);
  CHECK(option.type == Type::kInteger || option.type == Type::kSize, "--{}", name);
  const auto words = Words(name);
  if (words.empty()) return std::nullopt;
  for (std::string_view word : Split(option.words, '|')) {
    if (words[0] == word) return std::nullopt;
  }
  return *ParseInteger(words[0]);
}

std::optional<double> Settings::Number(std::string_view name) const {
  const Option& option = Find(name);
  CHECK(option.type == Type::kNumber, "--{}", name);
  const auto words = Words(name);
  if (words.empty()) return std::nullopt;
  for (std::string_view word : Split(option.words, '|')) {
    if (words[0] == word) return std::nullopt;
  }
  return *ParseNumber(words[0]);
}

bool Settings::Flag(std::string_view name) const {
  CHECK(Find(name).type == Type::kFlag, "--{}", name);
  const auto words = Words(name);
  return !words.empty() && words[0] == "true";
}

std::vector<std::string> Settings::List(std::string_view name) const {
  CHECK(Find(name).type == Type::kStrings, "--{}", name);
  return Words(name);
}

std::vector<const Assignment*> Settings::given() const {
  std::vector<const Assignment*> result;
  for (const Option& option : Table()) {
    if (const auto found = values_.find(option.name);
        found != values_.end() && !found->second.words.empty()) {
      result.push_back(&found->second);
    }
  }
  return result;
}

}  // namespace sluice::options
