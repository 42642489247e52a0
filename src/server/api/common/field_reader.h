// Reads typed fields of a JSON object that a client sent.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "server/api/common/api_error.h"

namespace sluice {

// A field with a wrong value.
struct FieldError {
  std::string location;  // for example "body.prompt.0"
  std::string expected;  // for example "an integer of at least 0"
  std::string found;     // the value, or "nothing"
};

// 400 "Bad Request" that names all errors; `param` is the location of the first. REQUIRES: `errors`
// is not empty.
tl::unexpected<ApiError> ValidationFailed(const std::vector<FieldError>& errors);
// 400 for a body that is not an object.
tl::unexpected<ApiError> NotAnObject(const json::Value& body);

// Returns the member `name`; null if it is absent or null, or if `object` is not an object.
const json::Value* Given(const json::Value& object, std::string_view name);
// Returns the text of the member `name`; "" if it is absent or not a string.
std::string TextAt(const json::Value& object, std::string_view name);

// Describes a value for error messages: scalars as JSON, long strings truncated, lists and objects
// by their number of elements.
std::string Describe(const json::Value& value);

// Restrictions on a field besides its type.
struct FieldRule {
  bool required = false;  // whether an absent field is an error
  bool nullable = false;  // whether null counts as absent; otherwise it is an error
  // Bounds of a number, and of every number in a list.
  double min = -HUGE_VAL;
  double max = HUGE_VAL;
  bool within_int64 = false;  // whether larger integers are an error; otherwise they become the
                              // nearest int64
  std::span<const std::string_view> one_of = {};  // allowed strings; empty: any string
};

// Reads a value as a type. Returns false if it has another type or breaks the rule. As in vLLM,
// numbers may be strings ("8"). Integers may be booleans or numbers without a fraction. Booleans
// may be 0, 1, "yes", "off" and the like. Pointers stay valid as long as `value`.
bool ReadValue(const json::Value& value, const FieldRule& rule, bool& result);
bool ReadValue(const json::Value& value, const FieldRule& rule, int64_t& result);
bool ReadValue(const json::Value& value, const FieldRule& rule, double& result);
bool ReadValue(const json::Value& value, const FieldRule& rule, std::string& result);
bool ReadValue(const json::Value& value, const FieldRule& rule, const json::Value::Array*& result);
bool ReadValue(const json::Value& value, const FieldRule& rule, const json::Value::Object*& result);

// Describes what ReadValue accepts, for error messages. The second argument only selects the type.
std::string Expected(const FieldRule& rule, const bool&);
std::string Expected(const FieldRule& rule, const int64_t&);
std::string Expected(const FieldRule& rule, const double&);
std::string Expected(const FieldRule& rule, const std::string&);
std::string Expected(const FieldRule& rule, const json::Value::Array* const&);
std::string Expected(const FieldRule& rule, const json::Value::Object* const&);

// Reads the members of one object. The type of the destination is the type of the field; its value
// before the call is the default. An invalid value leaves the default and is recorded, so that all
// errors of a request are reported together.
class FieldReader {
 public:
  // `location`: the object's place in error messages ("body"). REQUIRES: `object` is an object; it
  // and `errors` outlive the reader.
  FieldReader(const json::Value& object, std::string location, std::vector<FieldError>* errors)
      : object_(object), location_(std::move(location)), errors_(errors) {}

  // Reads the member `name`. Returns whether `field` was set.
  template <typename T>
  bool Read(std::string_view name, T& field, const FieldRule& rule = {}) {
    const json::Value* value = object_.Find(name);
    if (value == nullptr && rule.required) AddMissing(name);
    if (value == nullptr || (value->is_null() && rule.nullable)) return false;
    return Convert(*value, name, rule, field);
  }
  template <typename T>
  bool Read(std::string_view name, std::optional<T>& field, FieldRule rule = {}) {
    rule.nullable = true;
    T value{};
    if (!Read(name, value, rule)) return false;
    field = std::move(value);
    return true;
  }
  // Checks the type of a member whose value has no effect.
  template <typename T>
  void Check(std::string_view name, const FieldRule& rule = {}) {
    T ignored{};
    Read(name, ignored, rule);
  }

  // Returns the member as it is; null if it is absent or null.
  const json::Value* Raw(std::string_view name) const;
  const json::Value& object() const { return object_; }

  // Records an error at `place` inside this object.
  void Add(std::string_view place, std::string_view expected, const json::Value& found);
  void AddMissing(std::string_view place);
  std::vector<FieldError>* errors() { return errors_; }

 private:
  template <typename T>
  bool Convert(const json::Value& value, std::string_view place, const FieldRule& rule, T& field) {
    if (ReadValue(value, rule, field)) return true;
    Add(place, Expected(rule, field), value);
    return false;
  }
  // Converts a list.
  template <typename T>
  bool Convert(const json::Value& value, std::string_view place, const FieldRule& rule,
               std::vector<T>& field) {
    const json::Value::Array* list = nullptr;
    if (!Convert(value, place, {}, list)) return false;
    std::vector<T> result(list->size());
    bool good = true;
    for (size_t i = 0; i < list->size(); ++i) {
      if (ReadValue((*list)[i], rule, result[i])) continue;
      Add(fmt::format("{}.{}", place, i), Expected(rule, result[i]), (*list)[i]);
      good = false;
    }
    if (good) field = std::move(result);
    return good;
  }
  // Converts an object whose members all have the same type.
  template <typename T>
  bool Convert(const json::Value& value, std::string_view place, const FieldRule& rule,
               std::vector<std::pair<std::string, T>>& field) {
    const json::Value::Object* members = nullptr;
    if (!Convert(value, place, {}, members)) return false;
    std::vector<std::pair<std::string, T>> result;
    bool good = true;
    for (const auto& [key, member] : *members) {
      T element{};
      good = Convert(member, fmt::format("{}.{}", place, key), rule, element) && good;
      result.emplace_back(key, std::move(element));
    }
    if (good) field = std::move(result);
    return good;
  }

  const json::Value& object_;
  const std::string location_;
  std::vector<FieldError>* const errors_;
};

// The value's truth in Python: present and not null, false, zero or empty. vLLM uses it to decide
// whether an option is set.
bool IsTruthy(const json::Value* value);

}  // namespace sluice
