#include "options/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "base/file.h"
#include "base/json.h"

namespace sluice::options {
namespace {

struct Unit {
  std::string_view suffix;
  double factor;
  bool whole;  // whether only whole numbers are accepted
};

constexpr double kKibi = 1024;
constexpr Unit kUnits[] = {
    {"KiB", kKibi, false},
    {"MiB", kKibi* kKibi, false},
    {"GiB", kKibi* kKibi* kKibi, false},
    {"TiB", kKibi* kKibi* kKibi* kKibi, false},
    {"kB", 1e3, false},
    {"KB", 1e3, false},
    {"MB", 1e6, false},
    {"GB", 1e9, false},
    {"TB", 1e12, false},
    {"k", 1e3, false},
    {"m", 1e6, false},
    {"g", 1e9, false},
    {"t", 1e12, false},
    {"K", kKibi, true},
    {"M", kKibi* kKibi, true},
    {"G", kKibi* kKibi* kKibi, true},
    {"T", kKibi* kKibi* kKibi* kKibi, true},
};

tl::unexpected<Error> BadValue(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

Status CheckRange(const Option& option, double value) {
  if (value >= option.range.min && value <= option.range.max) return {};
  if (std::isinf(option.range.max))
    return BadValue(fmt::format("expected at least {}, found {}", option.range.min, value));
  return BadValue(
      fmt::format("expected {} to {}, found {}", option.range.min, option.range.max, value));
}

Result<std::string> CheckChoice(const Option& option, std::string_view word) {
  for (std::string_view choice : Split(option.choices, '|')) {
    if (AsciiLower(choice) == AsciiLower(word)) return std::string(choice);
  }
  return BadValue(
      fmt::format("expected {}, found '{}'", fmt::join(Split(option.choices, '|'), ", "), word));
}

Result<std::vector<std::string>> CheckList(std::vector<std::string> words) {
  if (words.size() != 1 || words[0].empty() || words[0][0] != '[') return words;
  auto list = json::Parse(words[0]);
  if (!list) return BadValue(fmt::format("a list in JSON: {}", list.error().message));
  std::vector<std::string> result;
  for (const json::Value& item : list->as_array()) {
    if (!item.is_string()) return BadValue("expected a JSON list of strings");
    result.push_back(item.as_string());
  }
  return result;
}

Result<std::string> CheckJson(const Option& option, const std::string& word) {
  std::string text = word;
  // The value of vLLM's --compilation-config may be just a mode number.
  if (option.name == "compilation-config" && word.size() == 1 && word[0] >= '0' && word[0] <= '3')
    return "{\"mode\":" + word + "}";
  if (!word.empty() && word[0] == '@') {
    ASSIGN_OR_RETURN(text, ReadFile(word.substr(1), 16 << 20));
  }
  auto value = json::Parse(text);
  if (!value) return BadValue(fmt::format("expected a JSON object: {}", value.error().message));
  if (!value->is_object()) return BadValue(fmt::format("expected a JSON object, found {}", text));
  return text;
}

// The error for an invalid number. It states what the option accepts.
tl::unexpected<Error> NoWholeNumber(const Option& option, std::string_view word) {
  // Error messages mention units only for numbers this large.
  constexpr double kLargeEnoughForUnits = 1e5;
  if (option.type == Type::kInteger && option.range.max < kLargeEnoughForUnits) {
    return BadValue(fmt::format("expected a whole number from {} to {}, found '{}'",
                                option.range.min, option.range.max, word));
  }
  return tl::unexpected<Error>(ParseInteger(word).error());
}

Result<std::string> CheckWord(const Option& option, std::string word) {
  for (std::string_view legal : Split(option.words, '|')) {
    if (word == legal) return word;
  }
  switch (option.type) {
    case Type::kFlag: {
      ASSIGN_OR_RETURN(const bool value, ParseFlag(word));
      return std::string(value ? "true" : "false");
    }
    case Type::kInteger:
    case Type::kSize: {
      const Result<int64_t> value = ParseInteger(word);
      if (!value) return NoWholeNumber(option, word);
      RETURN_IF_ERROR(CheckRange(option, static_cast<double>(*value)));
      return std::to_string(*value);
    }
    case Type::kNumber: {
      ASSIGN_OR_RETURN(const double value, ParseNumber(word));
      RETURN_IF_ERROR(CheckRange(option, value));
      return word;
    }
    case Type::kChoice: return CheckChoice(option, word);
    case Type::kJson: return CheckJson(option, word);
    case Type::kString:
    case Type::kStrings: return word;
  }
  return word;
}

}  // namespace

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

Result<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return BadValue(fmt::format("expected a number, found '{}'", text));
  }
  return value;
}

Result<int64_t> ParseInteger(std::string_view text) {
  int64_t plain = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), plain);
  if (error == std::errc() && end == text.data() + text.size()) return plain;

  Unit unit{"", 1, false};
  for (const Unit& candidate : kUnits) {
    if (text.size() > candidate.suffix.size() && text.ends_with(candidate.suffix)) {
      unit = candidate;
      break;
    }
  }
  const auto number = ParseNumber(text.substr(0, text.size() - unit.suffix.size()));
  if (!number) {
    return BadValue(fmt::format(
        "expected a whole number such as 4096, 64k (64000), 64K (65536) or 16GiB, found '{}'",
        text));
  }
  if (unit.whole && *number != std::floor(*number)) {
    return BadValue(fmt::format("{} counts powers of 1024 and takes whole numbers only, found '{}'",
                                unit.suffix, text));
  }
  // Accepts 25.6k as 25600, although 25.6 has no exact binary representation.
  const double value = *number * unit.factor;
  const double whole = std::round(value);
  if (std::abs(value - whole) > 1e-6 * std::max(1.0, unit.factor / 1e6) || std::abs(whole) > 9e18) {
    return BadValue(fmt::format("expected a whole number, found '{}'", text));
  }
  return static_cast<int64_t>(whole);
}

Result<bool> ParseFlag(std::string_view text) {
  const std::string lower = AsciiLower(text);
  for (std::string_view yes : {"true", "1", "yes", "on"}) {
    if (lower == yes) return true;
  }
  for (std::string_view no : {"false", "0", "no", "off"}) {
    if (lower == no) return false;
  }
  return BadValue(fmt::format("expected true or false, found '{}'", text));
}

Result<std::vector<std::string>> CheckWords(const Option& option, std::vector<std::string> words) {
  const bool nullable = option.default_value.empty();
  if (words.size() == 1 && nullable && (words[0] == "None" || words[0].empty()))
    return std::vector<std::string>{};
  if (option.type == Type::kStrings) return CheckList(std::move(words));
  if (words.size() != 1) return BadValue(fmt::format("expected one value, found {}", words.size()));
  ASSIGN_OR_RETURN(words[0], CheckWord(option, std::move(words[0])));
  return words;
}

bool AsksForSomething(const json::Value& value) {
  if (value.is_null()) return false;
  if (value.is_bool()) return value.as_bool();
  if (value.is_number()) return value.as_double() != 0;
  if (value.is_array()) return !value.as_array().empty();
  if (value.is_object()) return !value.as_object().empty();
  const std::string word = AsciiLower(value.as_string());
  return !word.empty() && word != "auto" && word != "none";
}

bool AsksForSomething(const Option& option, const std::vector<std::string>& words,
                      Dialect dialect) {
  if (words.empty()) return false;
  if (const std::string_view normal = DefaultOf(option, dialect); !normal.empty()) {
    const auto checked = CheckWords(option, {std::string(normal)});
    if (checked && *checked == words) return false;
    if (option.type == Type::kFlag) return true;
  }
  if (option.type == Type::kStrings) return true;
  if (option.type == Type::kNumber || option.type == Type::kInteger || option.type == Type::kSize) {
    const auto number = option.type == Type::kNumber
                            ? ParseNumber(words[0])
                            : ParseInteger(words[0]).map([](int64_t n) { return double(n); });
    return number ? *number != 0 : AsksForSomething(json::Value(words[0]));
  }
  if (const auto value = json::Parse(words[0]);
      value && (option.type == Type::kJson || option.type == Type::kFlag)) {
    return AsksForSomething(*value);
  }
  return AsksForSomething(json::Value(words[0]));
}

}  // namespace sluice::options
