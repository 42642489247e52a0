#include "server/api/field_reader.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/ascii.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

constexpr size_t kMaxReported = 10;
constexpr size_t kMaxErrors = 1000;  // Of a hostile list; more are not even counted.

}  // namespace

tl::unexpected<ApiError> ValidationFailed(const std::vector<FieldError>& errors) {
  ApiError result;
  result.type = "Bad Request";
  result.message =
      fmt::format("{} validation error{}:", errors.size(), errors.size() == 1 ? "" : "s");
  for (size_t i = 0; i < errors.size() && i < kMaxReported; ++i) {
    const FieldError& error = errors[i];
    result.message +=
        fmt::format("\n  {{'type': {}, 'loc': {}, 'msg': {}, 'input': {}", PythonRepr(error.type),
                    PythonRepr(error.location), PythonRepr(error.message), PythonRepr(error.input));
    if (!error.context.empty()) result.message += ", 'ctx': " + error.context;
    result.message += "}";
  }
  if (errors.size() > kMaxReported) {
    result.message += fmt::format("\n  ...and {} more errors", errors.size() - kMaxReported);
  }
  result.param = errors.front().location;
  return tl::unexpected<ApiError>(std::move(result));
}

tl::unexpected<ApiError> NotAnObject(const json::Value& body, int times) {
  FieldError error{"model_attributes_type", "body",
                   "Input should be a valid dictionary or object to extract fields from",
                   PythonInput(body), ""};
  if (body.is_null()) {
    error.type = "missing";
    error.message = "Field required";
    times = 1;
  }
  return ValidationFailed(std::vector<FieldError>(times, error));
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

void FieldReader::Add(std::string type, std::string_view place, std::string message,
                      const json::Value& input, std::string context) {
  if (errors_->size() >= kMaxErrors) return;
  std::string text = PythonInput(input);
  if (text.size() > 200) {
    size_t end = 200;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + "...";
  }
  errors_->push_back({std::move(type), fmt::format("{}.{}", location_, place), std::move(message),
                      std::move(text), std::move(context)});
}

void FieldReader::Append(FieldError error) {
  if (errors_->size() < kMaxErrors) errors_->push_back(std::move(error));
}

void FieldReader::AddMissing(std::string_view name) {
  Add("missing", name, "Field required", object_);
}

const json::Value* FieldReader::Raw(std::string_view name) const {
  const json::Value* value = Find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<int64_t> FieldReader::ParseInt(const json::Value& value, std::string_view place,
                                             IntRange range) {
  std::optional<int64_t> result;
  bool too_large = false, too_small = false;
  switch (value.type()) {
    case json::Type::kInteger: result = value.as_integer(); break;
    case json::Type::kBool: result = value.as_bool() ? 1 : 0; break;
    case json::Type::kBigInteger:
      too_small = value.as_string().starts_with('-');
      too_large = !too_small;
      result =
          too_small ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
      break;
    case json::Type::kDouble: {
      const double number = value.as_double();
      if (!std::isfinite(number)) {
        Add("finite_number", place, "Input should be a finite number", value);
        return std::nullopt;
      }
      if (number != std::floor(number)) {
        Add("int_from_float", place,
            "Input should be a valid integer, got a number with a fractional part", value);
        return std::nullopt;
      }
      too_large = number >= 9223372036854775808.0;
      too_small = number < -9223372036854775808.0;
      result = too_large   ? std::numeric_limits<int64_t>::max()
               : too_small ? std::numeric_limits<int64_t>::min()
                           : static_cast<int64_t>(number);
      break;
    }
    case json::Type::kString:
      result = LaxInt(value.as_string());
      if (!result) {
        Add("int_parsing", place,
            "Input should be a valid integer, unable to parse string as an integer", value);
        return std::nullopt;
      }
      break;
    default: Add("int_type", place, "Input should be a valid integer", value); return std::nullopt;
  }
  if (*result < range.min || (range.bounded && too_small)) {
    Add("greater_than_equal", place,
        fmt::format("Input should be greater than or equal to {}", range.min), value,
        fmt::format("{{'ge': {}}}", range.min));
    return std::nullopt;
  }
  if (*result > range.max || (range.bounded && too_large)) {
    Add("less_than_equal", place,
        fmt::format("Input should be less than or equal to {}", range.max), value,
        fmt::format("{{'le': {}}}", range.max));
    return std::nullopt;
  }
  return result;
}

std::optional<double> FieldReader::ParseFloat(const json::Value& value, std::string_view place) {
  if (value.is_number()) return value.as_double();
  if (value.is_bool()) return value.as_bool() ? 1.0 : 0.0;
  if (value.is_string()) {
    const std::optional<double> result = PythonFloatFrom(value.as_string());
    if (!result)
      Add("float_parsing", place,
          "Input should be a valid number, unable to parse string as a number", value);
    return result;
  }
  Add("float_type", place, "Input should be a valid number", value);
  return std::nullopt;
}

std::optional<bool> FieldReader::ParseBool(const json::Value& value, std::string_view place) {
  if (value.is_bool()) return value.as_bool();
  if (value.is_number()) {
    const double number = value.as_double();
    if (number == 0 || number == 1) return number == 1;
  } else if (value.is_string()) {
    const std::string text = AsciiLower(value.as_string());
    for (const std::string_view word : {"1", "on", "t", "true", "y", "yes"}) {
      if (text == word) return true;
    }
    for (const std::string_view word : {"0", "off", "f", "false", "n", "no"}) {
      if (text == word) return false;
    }
  } else {
    Add("bool_type", place, "Input should be a valid boolean", value);
    return std::nullopt;
  }
  Add("bool_parsing", place, "Input should be a valid boolean, unable to interpret input", value);
  return std::nullopt;
}

std::optional<int64_t> FieldReader::OptionalInt(std::string_view name, IntRange range) {
  const json::Value* value = Raw(name);
  return value == nullptr ? std::nullopt : ParseInt(*value, name, range);
}
int64_t FieldReader::Int(std::string_view name, int64_t fallback, IntRange range) {
  const json::Value* value = Find(name);
  return value == nullptr ? fallback : ParseInt(*value, name, range).value_or(fallback);
}
std::optional<double> FieldReader::OptionalFloat(std::string_view name) {
  const json::Value* value = Raw(name);
  return value == nullptr ? std::nullopt : ParseFloat(*value, name);
}
double FieldReader::Float(std::string_view name, double fallback) {
  const json::Value* value = Find(name);
  return value == nullptr ? fallback : ParseFloat(*value, name).value_or(fallback);
}
std::optional<bool> FieldReader::OptionalBool(std::string_view name) {
  const json::Value* value = Raw(name);
  return value == nullptr ? std::nullopt : ParseBool(*value, name);
}
bool FieldReader::Bool(std::string_view name, bool fallback) {
  const json::Value* value = Find(name);
  return value == nullptr ? fallback : ParseBool(*value, name).value_or(fallback);
}

std::optional<std::string> FieldReader::OptionalString(std::string_view name) {
  const json::Value* value = Raw(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->as_string();
  Add("string_type", name, "Input should be a valid string", *value);
  return std::nullopt;
}
std::string FieldReader::String(std::string_view name, std::string fallback) {
  const json::Value* value = Find(name);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->as_string();
  Add("string_type", name, "Input should be a valid string", *value);
  return fallback;
}

const json::Value* FieldReader::OptionalList(std::string_view name) {
  const json::Value* value = Raw(name);
  if (value == nullptr || value->is_array()) return value;
  Add("list_type", name, "Input should be a valid list", *value);
  return nullptr;
}

const json::Value* FieldReader::OptionalObject(std::string_view name, bool model) {
  const json::Value* value = Raw(name);
  if (value == nullptr || value->is_object()) return value;
  if (model) {
    Add("model_attributes_type", name,
        "Input should be a valid dictionary or object to extract fields from", *value);
  } else {
    Add("dict_type", name, "Input should be a valid dictionary", *value);
  }
  return nullptr;
}

std::optional<std::vector<int64_t>> FieldReader::OptionalInts(std::string_view name,
                                                              IntRange range) {
  const json::Value* list = OptionalList(name);
  if (list == nullptr) return std::nullopt;
  std::vector<int64_t> result;
  result.reserve(list->as_array().size());
  for (size_t i = 0; i < list->as_array().size(); ++i) {
    const json::Value& element = list->as_array()[i];
    if (element.is_integer() && element.as_integer() >= range.min &&
        element.as_integer() <= range.max) {
      result.push_back(element.as_integer());
    } else if (const auto value = ParseInt(element, fmt::format("{}.{}", name, i), range)) {
      result.push_back(*value);
    }
  }
  return result;
}

std::vector<std::string> FieldReader::Strings(std::string_view name) {
  const json::Value* value = Find(name);
  if (value == nullptr) return {};
  if (!value->is_array()) {
    Add("list_type", name, "Input should be a valid list", *value);
    return {};
  }
  std::vector<std::string> result;
  for (size_t i = 0; i < value->as_array().size(); ++i) {
    const json::Value& element = value->as_array()[i];
    if (element.is_string()) {
      result.push_back(element.as_string());
    } else {
      Add("string_type", fmt::format("{}.{}", name, i), "Input should be a valid string", element);
    }
  }
  return result;
}

std::optional<std::vector<std::pair<std::string, double>>> FieldReader::OptionalFloatMap(
    std::string_view name) {
  const json::Value* map = OptionalObject(name);
  if (map == nullptr) return std::nullopt;
  std::vector<std::pair<std::string, double>> result;
  for (const auto& [key, value] : map->as_object()) {
    if (const auto number = ParseFloat(value, fmt::format("{}.{}", name, key)))
      result.emplace_back(key, *number);
  }
  return result;
}

std::optional<std::string> FieldReader::OptionalChoice(std::string_view name,
                                                       const std::vector<std::string>& choices,
                                                       std::string_view expected) {
  const json::Value* value = Raw(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string() &&
      std::find(choices.begin(), choices.end(), value->as_string()) != choices.end()) {
    return value->as_string();
  }
  Add("literal_error", name, fmt::format("Input should be {}", expected), *value,
      fmt::format("{{'expected': {}}}", PythonRepr(expected)));
  return std::nullopt;
}

}  // namespace sluice
