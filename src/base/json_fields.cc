#include "base/json_fields.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/utf8.h"

namespace sluice {

std::string ShortText(const json::Value& value) {
  constexpr size_t kShown = 60;
  if (value.is_array() || value.is_object())
    return fmt::format("an {}", json::TypeName(value.type()));
  if (value.is_double() && !std::isfinite(value.as_double())) return "a number too large";
  std::string text = json::Write(value);
  if (text.size() > kShown) text = std::string(Utf8Prefix(text, kShown)) + "...";
  return text;
}

std::string ShortName(std::string_view name) {
  constexpr size_t kShown = 60;
  std::string text;
  json::AppendString(text, Utf8Prefix(name, kShown));
  text = text.substr(1, text.size() - 2);  // Removes the quotes.
  if (name.size() > kShown) text += "...";
  return text;
}

const json::Value* JsonFields::Given(std::string_view name) const {
  const json::Value* value = object_.Find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<std::optional<std::map<std::string, std::string>>> JsonFields::Texts(
    std::string_view name) const {
  ASSIGN_OR_RETURN(const json::Value* object, Object(name));
  if (object == nullptr) return std::nullopt;
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : object->as_object()) {
    if (value.is_string()) texts.emplace(key, value.as_string());
  }
  return texts;
}

tl::unexpected<Error> JsonFields::Bad(std::string_view name, std::string_view expected,
                                      const json::Value& found) const {
  const std::string field = where_ + std::string(name);
  return Fail(ErrorCode::kInvalidData,
              fmt::format("{} must be {}, found {}", field, expected, ShortText(found)), field);
}

tl::unexpected<Error> JsonFields::Missing(std::string_view name) const {
  const std::string field = where_ + std::string(name);
  return Fail(ErrorCode::kInvalidData, fmt::format("{} is missing", field), field);
}

Result<std::optional<int64_t>> JsonFields::Integer(std::string_view name, int64_t min,
                                                   int64_t max) const {
  const json::Value* value = Given(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_integer() || value->as_integer() < min || value->as_integer() > max) {
    return Bad(name, fmt::format("an integer from {} to {}", min, max), *value);
  }
  return value->as_integer();
}

Result<int64_t> JsonFields::RequiredInteger(std::string_view name, int64_t min, int64_t max) const {
  ASSIGN_OR_RETURN(const std::optional<int64_t> value, Integer(name, min, max));
  if (!value) return Missing(name);
  return *value;
}

Result<std::optional<double>> JsonFields::Number(std::string_view name, double min,
                                                 double max) const {
  const json::Value* value = Given(name);
  if (value == nullptr) return std::nullopt;
  // Written in this form so that NaN also fails.
  if (!value->is_number() || !(value->as_double() >= min && value->as_double() <= max)) {
    return Bad(name, fmt::format("a number from {} to {}", min, max), *value);
  }
  return value->as_double();
}

Result<std::optional<bool>> JsonFields::Bool(std::string_view name) const {
  const json::Value* value = Given(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) return Bad(name, "true or false", *value);
  return value->as_bool();
}

Result<std::optional<std::string>> JsonFields::String(std::string_view name) const {
  const json::Value* value = Given(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return Bad(name, "a string", *value);
  return value->as_string();
}

Result<std::optional<std::vector<std::string>>> JsonFields::Strings(std::string_view name) const {
  const json::Value* value = Given(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) return Bad(name, "a list of strings", *value);
  std::vector<std::string> strings;
  for (const json::Value& element : value->as_array()) {
    if (!element.is_string()) return Bad(name, "a list of strings", element);
    strings.push_back(element.as_string());
  }
  return strings;
}

Result<std::optional<std::vector<int64_t>>> JsonFields::Integers(std::string_view name, int64_t min,
                                                                 int64_t max) const {
  const json::Value* value = Given(name);
  if (value == nullptr) return std::nullopt;
  const std::string expected = fmt::format("a list of integers from {} to {}", min, max);
  if (!value->is_array()) return Bad(name, expected, *value);
  std::vector<int64_t> integers;
  for (const json::Value& integer : value->as_array()) {
    if (!integer.is_integer() || integer.as_integer() < min || integer.as_integer() > max)
      return Bad(name, expected, integer);
    integers.push_back(integer.as_integer());
  }
  return integers;
}

Result<std::vector<int32_t>> JsonFields::TokenIds(std::string_view name) const {
  std::vector<int32_t> ids;
  const json::Value* value = Given(name);
  if (value == nullptr) return ids;
  const auto add = [&](const json::Value& id) -> Status {
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() > kMax) {
      return Bad(name, "a token id or a list of token ids", id);
    }
    ids.push_back(static_cast<int32_t>(id.as_integer()));
    return {};
  };
  if (!value->is_array()) {
    RETURN_IF_ERROR(add(*value));
    return ids;
  }
  for (const json::Value& id : value->as_array()) RETURN_IF_ERROR(add(id));
  return ids;
}

Result<const json::Value*> JsonFields::Object(std::string_view name) const {
  const json::Value* value = Given(name);
  if (value != nullptr && !value->is_object()) return Bad(name, "an object", *value);
  return value;
}

Result<const json::Value::Array*> JsonFields::Array(std::string_view name) const {
  const json::Value* value = Given(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) return Bad(name, "a list", *value);
  return &value->as_array();
}

}  // namespace sluice
