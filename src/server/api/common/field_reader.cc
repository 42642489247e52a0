#include "server/api/common/field_reader.h"

#include <algorithm>
#include <limits>

#include <fmt/ranges.h>

#include "base/ascii.h"
#include "server/api/common/number_text.h"
#include "server/api/common/python_text.h"

namespace sluice {
namespace {

constexpr size_t kMaxReported = 10;
constexpr size_t kMaxErrors = 1000;  // Limits the memory for a list of wrong elements.
constexpr size_t kMaxShown = 80;     // Maximum length of a string in a message, in characters.

constexpr double kInt64End = 9223372036854775808.0;

// Returns " of at least 0", " from 0 to 1", or "".
std::string Bounds(const FieldRule& rule) {
  const bool has_min = rule.min > -HUGE_VAL, has_max = rule.max < HUGE_VAL;
  if (has_min && has_max) return fmt::format(" from {} to {}", rule.min, rule.max);
  if (has_min) return fmt::format(" of at least {}", rule.min);
  return has_max ? fmt::format(" of at most {}", rule.max) : "";
}

bool IsWithin(double value, const FieldRule& rule) {
  return value >= rule.min && value <= rule.max;
}

}  // namespace

std::string Describe(const json::Value& value) {
  const auto count = [](size_t n, const char* one) {
    return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s");
  };
  if (value.is_array()) return "a list of " + count(value.as_array().size(), "element");
  if (value.is_object()) return "an object with " + count(value.as_object().size(), "member");
  if (!value.is_string() && !value.is_big_integer()) return json::Write(value);
  const std::string_view text = value.as_string();
  const std::string shown(TrimToCharacters(text, kMaxShown));
  return (value.is_string() ? json::Write(shown) : shown) +
         (shown.size() < text.size() ? "..." : "");
}

tl::unexpected<ApiError> ValidationFailed(const std::vector<FieldError>& errors) {
  ApiError result;
  result.type = "Bad Request";
  result.param = errors.front().location;
  for (size_t i = 0; i < errors.size() && i < kMaxReported; ++i) {
    const FieldError& error = errors[i];
    result.message += fmt::format("{}{}: expected {}, found {}", i > 0 ? "; " : "", error.location,
                                  error.expected, error.found);
  }
  if (errors.size() > kMaxReported)
    result.message += fmt::format("; and {} more errors", errors.size() - kMaxReported);
  return tl::unexpected<ApiError>(std::move(result));
}

tl::unexpected<ApiError> NotAnObject(const json::Value& body) {
  return ValidationFailed({{"body", "an object", Describe(body)}});
}

bool IsTruthy(const json::Value* value) {
  if (value == nullptr) return false;
  switch (value->type()) {
    case json::Type::kNull: return false;
    case json::Type::kBool: return value->as_bool();
    case json::Type::kInteger: return value->as_integer() != 0;
    case json::Type::kBigInteger: return true;
    case json::Type::kDouble: return value->as_double() != 0;
    case json::Type::kString: return !value->as_string().empty();
    case json::Type::kArray: return !value->as_array().empty();
    case json::Type::kObject: return !value->as_object().empty();
  }
  return false;
}

bool ReadValue(const json::Value& value, const FieldRule&, bool& result) {
  static constexpr std::string_view kTrue[] = {"1", "on", "t", "true", "y", "yes"};
  static constexpr std::string_view kFalse[] = {"0", "off", "f", "false", "n", "no"};
  if (value.is_bool()) {
    result = value.as_bool();
    return true;
  }
  if (value.is_number()) {
    result = value.as_double() == 1;
    return result || value.as_double() == 0;
  }
  if (!value.is_string()) return false;
  const std::string word = AsciiLower(value.as_string());
  result = std::ranges::find(kTrue, word) != std::end(kTrue);
  return result || std::ranges::find(kFalse, word) != std::end(kFalse);
}

bool ReadValue(const json::Value& value, const FieldRule& rule, int64_t& result) {
  if (value.is_integer()) {
    result = value.as_integer();
  } else if (value.is_bool()) {
    result = value.as_bool() ? 1 : 0;
  } else if (value.is_number()) {  // A number with a fraction, an exponent or too many digits.
    const double number = value.as_double();
    if (number != std::floor(number)) return false;
    const bool fits = !value.is_big_integer() && number >= -kInt64End && number < kInt64End;
    if (!fits && rule.within_int64) return false;
    result = fits         ? static_cast<int64_t>(number)
             : number > 0 ? std::numeric_limits<int64_t>::max()
                          : std::numeric_limits<int64_t>::min();
  } else if (value.is_string()) {
    std::string_view text = value.as_string();
    // "8.0" counts as an integer.
    if (const size_t dot = text.find('.'); dot != std::string_view::npos && dot > 0) {
      if (text.find_first_not_of('0', dot + 1) != std::string_view::npos) return false;
      text = text.substr(0, dot);
    }
    const std::optional<int64_t> integer = ParseInteger(text);
    if (!integer) return false;
    result = *integer;
  } else {
    return false;
  }
  return IsWithin(static_cast<double>(result), rule);
}

bool ReadValue(const json::Value& value, const FieldRule& rule, double& result) {
  if (value.is_number()) {
    result = value.as_double();
  } else if (value.is_bool()) {
    result = value.as_bool() ? 1 : 0;
  } else if (value.is_string()) {
    const std::optional<double> number = ParseNumber(value.as_string());
    if (!number) return false;
    result = *number;
  } else {
    return false;
  }
  // NaN is accepted unless the field has bounds.
  return std::isnan(result) ? rule.min == -HUGE_VAL && rule.max == HUGE_VAL
                            : IsWithin(result, rule);
}

bool ReadValue(const json::Value& value, const FieldRule& rule, std::string& result) {
  if (!value.is_string()) return false;
  result = value.as_string();
  return rule.one_of.empty() || std::ranges::find(rule.one_of, result) != rule.one_of.end();
}

bool ReadValue(const json::Value& value, const FieldRule&, const json::Value::Array*& result) {
  result = value.is_array() ? &value.as_array() : nullptr;
  return result != nullptr;
}

bool ReadValue(const json::Value& value, const FieldRule&, const json::Value::Object*& result) {
  result = value.is_object() ? &value.as_object() : nullptr;
  return result != nullptr;
}

std::string Expected(const FieldRule&, const bool&) {
  return "a boolean";
}
std::string Expected(const FieldRule& rule, const int64_t&) {
  return fmt::format("an integer{}{}", rule.within_int64 ? " of 64 bits" : "", Bounds(rule));
}
std::string Expected(const FieldRule& rule, const double&) {
  return "a number" + Bounds(rule);
}
std::string Expected(const FieldRule& rule, const std::string&) {
  if (rule.one_of.empty()) return "a string";
  return fmt::format("one of \"{}\"", fmt::join(rule.one_of, "\", \""));
}
std::string Expected(const FieldRule&, const json::Value::Array* const&) {
  return "a list";
}
std::string Expected(const FieldRule&, const json::Value::Object* const&) {
  return "an object";
}

const json::Value* Given(const json::Value& object, std::string_view name) {
  const json::Value* value = object.Find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string TextAt(const json::Value& object, std::string_view name) {
  const json::Value* value = object.Find(name);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

const json::Value* FieldReader::Raw(std::string_view name) const {
  return Given(object_, name);
}

void FieldReader::Add(std::string_view place, std::string_view expected, const json::Value& found) {
  if (errors_->size() < kMaxErrors) {
    errors_->push_back(
        {fmt::format("{}.{}", location_, place), std::string(expected), Describe(found)});
  }
}

void FieldReader::AddMissing(std::string_view place) {
  if (errors_->size() < kMaxErrors)
    errors_->push_back({fmt::format("{}.{}", location_, place), "a value", "nothing"});
}

}  // namespace sluice
