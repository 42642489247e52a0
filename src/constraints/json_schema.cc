#include "constraints/json_schema.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "constraints/grammar_text.h"
#include "constraints/schema_rewriter.h"

namespace sluice {
namespace {

using json::Value;

constexpr std::string_view kTypes[] = {"string", "number", "integer", "boolean",
                                       "null",   "array",  "object"};
template <size_t N>
bool Contains(const std::string_view (&names)[N], std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

bool IsListOfStrings(const Value& value) {
  return value.is_array() && std::ranges::all_of(value.as_array(), &Value::is_string);
}

class SchemaChecker {
 public:
  explicit SchemaChecker(const Value& root) : root_(root) {}

  Status CheckAll() {
    RETURN_IF_ERROR(Check(root_, "#", 1));
    // Also checks the targets of references, which may be outside the places where schemas are
    // expected.
    while (!targets_.empty()) {
      const auto [schema, place] = std::move(targets_.back());
      targets_.pop_back();
      if (!checked_.contains(schema)) RETURN_IF_ERROR(Check(*schema, place, 1));
    }
    return {};
  }

 private:
  Status Check(const Value& schema, const std::string& place, int depth) {
    checked_.insert(&schema);
    if (depth > kMaxConstraintDepth) {
      return Wrong(place, fmt::format("schemas are nested more than {} deep", kMaxConstraintDepth));
    }
    if (schema.is_bool()) return {};
    if (!schema.is_object()) return Wrong(place, "a schema must be an object, true or false");
    RETURN_IF_ERROR(CheckKinds(schema, place));
    RETURN_IF_ERROR(CheckBounds(schema, place));
    RETURN_IF_ERROR(CheckWords(schema, place));
    return CheckParts(schema, place, depth);
  }

  tl::unexpected<Error> Wrong(const std::string& place, std::string_view message) const {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("at {}: {}", place, message));
  }

  Status Require(const Value& schema, const std::string& place,
                 std::initializer_list<std::string_view> names, bool (*is_good)(const Value&),
                 std::string_view expected) const {
    for (const std::string_view name : names) {
      const Value* value = schema.Find(name);
      if (value != nullptr && !is_good(*value))
        return Wrong(place, fmt::format("`{}` must be {}", name, expected));
    }
    return {};
  }

  Status CheckKinds(const Value& schema, const std::string& place) const {
    const auto is_count = [](const Value& value) {
      return value.is_number() && value.as_double() >= 0 &&
             value.as_double() == std::floor(value.as_double());
    };
    RETURN_IF_ERROR(Require(
        schema, place,
        {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"},
        is_count, "an integer of at least 0"));
    RETURN_IF_ERROR(Require(
        schema, place, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
        [](const Value& value) { return value.is_number(); }, "a number"));
    RETURN_IF_ERROR(Require(
        schema, place,
        {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"},
        [](const Value& value) { return value.is_object(); }, "an object"));
    RETURN_IF_ERROR(Require(
        schema, place, {"uniqueItems"}, [](const Value& value) { return value.is_bool(); },
        "true or false"));
    RETURN_IF_ERROR(Require(
        schema, place, {"dependentRequired"},
        [](const Value& value) {
          return value.is_object() &&
                 std::ranges::all_of(value.as_object(), [](const Value::Member& member) {
                   return IsListOfStrings(member.second);
                 });
        },
        "an object of lists of strings"));
    RETURN_IF_ERROR(Require(
        schema, place, {"pattern", "format", "$ref"},
        [](const Value& value) { return value.is_string(); }, "a string"));
    RETURN_IF_ERROR(Require(
        schema, place, {"anyOf", "oneOf", "allOf", "prefixItems"},
        [](const Value& value) { return value.is_array(); }, "a list"));
    RETURN_IF_ERROR(Require(
        schema, place, {"enum"},
        [](const Value& value) { return value.is_array() && !value.as_array().empty(); },
        "a list of at least one value"));
    return Require(schema, place, {"required"}, IsListOfStrings, "a list of strings");
  }

  Status CheckBounds(const Value& schema, const std::string& place) const {
    constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
        {"minLength", "maxLength"},
        {"minItems", "maxItems"},
        {"minProperties", "maxProperties"},
        {"minimum", "maximum"}};
    for (const auto& [low, high] : kPairs) {
      const Value* least = schema.Find(low);
      const Value* most = schema.Find(high);
      if (least != nullptr && most != nullptr && least->as_double() > most->as_double())
        return Wrong(place, fmt::format("`{}` is greater than `{}`", low, high));
    }
    const Value* multiple = schema.Find("multipleOf");
    if (multiple != nullptr && multiple->as_double() <= 0)
      return Wrong(place, "`multipleOf` must be greater than 0");
    return {};
  }

  Status CheckWords(const Value& schema, const std::string& place) {
    if (const Value* type = schema.Find("type")) {
      const auto is_type = [](const Value& value) {
        return value.is_string() && Contains(kTypes, value.as_string());
      };
      const bool good =
          is_type(*type) || (type->is_array() && std::ranges::all_of(type->as_array(), is_type));
      if (!good) {
        return Wrong(place, fmt::format("`type` must be one or a list of {}, found {}",
                                        fmt::join(kTypes, ", "), json::Write(*type)));
      }
    }
    if (const Value* pattern = schema.Find("pattern")) {
      const Status good = CheckConstraintText(ConstraintKind::kRegex, pattern->as_string());
      if (!good) return Wrong(place, fmt::format("`pattern`: {}", good.error().message));
    }
    if (const Value* ref = schema.Find("$ref")) {
      const std::string& pointer = ref->as_string();
      if (pointer.starts_with('#')) {
        const Value* target = ResolvePointer(root_, pointer);
        if (target == nullptr)
          return Wrong(place, fmt::format("`$ref` {} leads nowhere", json::Write(*ref)));
        targets_.emplace_back(target, pointer);
      }
    }
    if (schema.Find("contains") != nullptr) return Wrong(place, "`contains` is not supported");
    return {};
  }

  Status CheckParts(const Value& schema, const std::string& place, int depth) {
    const auto check = [&](const Value& part, auto... names) {
      std::string inner = place;
      ((inner += fmt::format("/{}", names)), ...);
      return Check(part, inner, depth + 1);
    };
    // Before draft 2020-12, a list in `items` had the meaning of `prefixItems`.
    if (const Value* items = schema.Find("items"); items != nullptr && items->is_array()) {
      if (schema.Find("prefixItems") != nullptr) {
        return Wrong(place,
                     "`items` is a list although there is `prefixItems`; make `items` a schema, or "
                     "omit `prefixItems`");
      }
      for (size_t i = 0; i < items->as_array().size(); ++i)
        RETURN_IF_ERROR(check(items->as_array()[i], "items", i));
    } else if (items != nullptr) {
      RETURN_IF_ERROR(check(*items, "items"));
    }
    for (const char* name : {"additionalItems", "additionalProperties", "propertyNames", "not",
                             "if", "then", "else", "unevaluatedProperties", "unevaluatedItems"}) {
      if (const Value* part = schema.Find(name)) RETURN_IF_ERROR(check(*part, name));
    }
    for (const char* name : {"anyOf", "oneOf", "allOf", "prefixItems"}) {
      const Value* parts = schema.Find(name);
      for (size_t i = 0; parts != nullptr && i < parts->as_array().size(); ++i)
        RETURN_IF_ERROR(check(parts->as_array()[i], name, i));
    }
    for (const char* name :
         {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}) {
      const Value* parts = schema.Find(name);
      if (parts == nullptr) continue;
      for (const auto& [key, part] : parts->as_object()) {
        if (std::string_view(name) == "patternProperties") {
          const Status good = CheckConstraintText(ConstraintKind::kRegex, key);
          if (!good) return Wrong(place, fmt::format("`{}`: {}", name, good.error().message));
        }
        RETURN_IF_ERROR(check(part, name, key));
      }
    }
    return {};
  }

  const Value& root_;
  std::set<const Value*> checked_;
  std::vector<std::pair<const Value*, std::string>> targets_;
};

}  // namespace

Result<CheckedSchema> CheckJsonSchema(const Value& schema, bool strict) {
  RETURN_IF_ERROR(SchemaChecker(schema).CheckAll());
  ASSIGN_OR_RETURN(RewrittenSchema rewritten, SchemaRewriter(schema).Run());
  if (strict && !rewritten.not_enforced.empty()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "with `strict`, every keyword must be enforced, but these cannot be enforced: {}",
            fmt::join(rewritten.not_enforced, ", ")));
  }
  if (rewritten.schema.is_bool())
    return Fail(ErrorCode::kInvalidArgument, "no answer meets the schema");
  return CheckedSchema{std::move(rewritten.schema), std::move(rewritten.not_enforced)};
}

}  // namespace sluice
