// Reads the steps of a tokenizer.json. Errors name the step's path.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"

namespace sluice {

// The fields of a step, an object with a "type". Unknown fields are ignored, as other readers do.
class StepFields {
 public:
  // `where`: the step's path in the file for error messages ("pre_tokenizer.pretokenizers[1]").
  static Result<StepFields> Of(const json::Value& value, std::string where) {
    const json::Value* type = value.Find("type");
    if (type == nullptr || !type->is_string()) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{} must be an object with a string 'type', found {}", where,
                              value.is_object() ? "none" : json::TypeName(value.type())),
                  where);
    }
    return StepFields(value, type->as_string(), std::move(where));
  }

  const std::string& type() const { return type_; }
  const std::string& where() const { return where_; }
  // Returns the value, or null if the field is absent or null.
  const json::Value* Find(std::string_view name) const { return fields_.Given(name); }

  // Returns the field's value, or `fallback` if it is absent or null; an error if there is no
  // fallback.
  Result<bool> Bool(std::string_view name, std::optional<bool> fallback = std::nullopt) const {
    ASSIGN_OR_RETURN(const std::optional<bool> value, fields_.Bool(name));
    if (!value && !fallback) return fields_.Missing(name);
    return value ? *value : *fallback;
  }
  Result<std::string> String(std::string_view name) const {
    ASSIGN_OR_RETURN(std::optional<std::string> value, fields_.String(name));
    if (!value) return fields_.Missing(name);
    return *std::move(value);
  }
  Result<size_t> Count(std::string_view name) const {
    ASSIGN_OR_RETURN(const int64_t value,
                     fields_.RequiredInteger(name, 0, std::numeric_limits<int64_t>::max()));
    return static_cast<size_t>(value);
  }
  Result<const json::Value::Array*> Array(std::string_view name) const {
    ASSIGN_OR_RETURN(const json::Value::Array* const value, fields_.Array(name));
    if (value == nullptr) return fields_.Missing(name);
    return value;
  }

  tl::unexpected<Error> Wrong(std::string_view name, std::string_view expected,
                              const json::Value* found) const {
    static const json::Value kNull;
    return fields_.Bad(name, expected, found == nullptr ? kNull : *found);
  }
  // The error for a step with an unsupported type.
  tl::unexpected<Error> UnsupportedType(std::string_view supported) const {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{} of type '{}' is not supported; supported are {}", where_, type_, supported),
        where_);
  }

 private:
  StepFields(const json::Value& value, std::string type, std::string where)
      : type_(std::move(type)),
        where_(std::move(where)),
        fields_(value, fmt::format("{} ({}).", where_, type_)) {}

  std::string type_;
  std::string where_;
  JsonFields fields_;
};

// Limits how much all steps together can lengthen a text. Without a limit, the replacements in a
// few kilobytes of tokenizer.json could expand one letter beyond the available memory. Real
// tokenizers stay below a factor of 10.
class TextGrowth {
 public:
  // Adds a step that makes a text up to `factor` times as long.
  Status Add(const StepFields& fields, size_t factor) {
    constexpr size_t kMost = 1024;
    total_ = factor > kMost / total_ ? kMost + 1 : total_ * factor;
    if (total_ <= kMost) return {};
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} ({}): the replacements up to here can make a text more than {} "
                            "times as long, which is not supported",
                            fields.where(), fields.type(), kMost),
                fields.where());
  }

 private:
  size_t total_ = 1;
};

// Maximum nesting of Sequence steps, and maximum number of steps.
inline constexpr int kMaxSequenceDepth = 8;
inline constexpr size_t kMaxSteps = 256;

// Calls add(fields) -> Status for `value` itself or, if it is a Sequence, for each step in its
// array `list_name`, in order. Null and absent values contain no steps.
template <typename Add>
Status ForEachStep(const json::Value* value, const std::string& where, std::string_view list_name,
                   Add&& add, size_t* count, int depth = 0) {
  if (value == nullptr || value->is_null()) return {};
  ASSIGN_OR_RETURN(const StepFields fields, StepFields::Of(*value, where));
  if (++*count > kMaxSteps || depth > kMaxSequenceDepth) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: more than {} steps, or sequences nested deeper than {}", where,
                            kMaxSteps, kMaxSequenceDepth),
                where);
  }
  if (fields.type() != "Sequence") return add(fields);
  ASSIGN_OR_RETURN(const json::Value::Array* const steps, fields.Array(list_name));
  for (size_t i = 0; i < steps->size(); ++i) {
    RETURN_IF_ERROR(ForEachStep(&(*steps)[i], fmt::format("{}.{}[{}]", where, list_name, i),
                                list_name, add, count, depth + 1));
  }
  return {};
}

}  // namespace sluice
