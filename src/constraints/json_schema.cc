#include "constraints/json_schema.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "constraints/grammar_text.h"

namespace sluice {
namespace {

using json::Value;

constexpr std::string_view kTypes[] = {"string", "number", "integer", "boolean",
                                       "null",   "array",  "object"};
constexpr std::string_view kFormats[] = {"date",         "date-time",    "duration",
                                         "email",        "hostname",     "ipv4",
                                         "ipv6",         "json-pointer", "relative-json-pointer",
                                         "time",         "uri",          "uri-reference",
                                         "uri-template", "uuid"};
// Keywords that constrain, beside which the engine reads no other of them (in its order).
constexpr std::string_view kAlone[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
constexpr std::string_view kNotEnforced[] = {
    "not",         "if",         "then", "else", "dependentRequired", "dependentSchemas",
    "minContains", "maxContains"};
// Keywords that say nothing about an instance, or only with others.
constexpr std::string_view kAnnotations[] = {"$schema",         "$id",
                                             "$defs",           "definitions",
                                             "$comment",        "$anchor",
                                             "title",           "default",
                                             "examples",        "description",
                                             "deprecated",      "readOnly",
                                             "writeOnly",       "example",
                                             "$vocabulary",     "$dynamicAnchor",
                                             "contentEncoding", "contentMediaType",
                                             "contentSchema"};

template <size_t N>
bool Contains(const std::string_view (&names)[N], std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

// "#/a/b" with "~1" and "~0" for "/" and "~".
const Value* Resolve(const Value& root, std::string_view pointer) {
  if (pointer == "#") return &root;
  if (!pointer.starts_with("#/")) return nullptr;
  const Value* current = &root;
  pointer.remove_prefix(2);
  while (true) {
    const size_t end = std::min(pointer.find('/'), pointer.size());
    std::string name;
    for (size_t i = 0; i < end; ++i) {
      const bool escaped = pointer[i] == '~' && i + 1 < end;
      name += !escaped ? pointer[i] : pointer[i + 1] == '1' ? '/' : '~';
      if (escaped) ++i;
    }
    current = current->Find(name);
    if (current == nullptr || end == pointer.size()) return current;
    pointer.remove_prefix(end + 1);
  }
}

class SchemaChecker {
 public:
  SchemaChecker(const Value& root, std::vector<std::string>& not_enforced)
      : root_(root), not_enforced_(not_enforced) {}

  Status Check(const Value& schema, const std::string& place, int depth) {
    if (depth > kMaxConstraintDepth) {
      return Wrong(place, fmt::format("schemas are inside each other more than {} deep",
                                      kMaxConstraintDepth));
    }
    if (schema.is_bool()) return {};
    if (!schema.is_object()) return Wrong(place, "a schema must be an object, true or false");
    RETURN_IF_ERROR(CheckKinds(schema, place));
    RETURN_IF_ERROR(CheckBounds(schema, place));
    RETURN_IF_ERROR(CheckWords(schema, place));
    NoteNotEnforced(schema, place);
    return CheckParts(schema, place, depth);
  }

 private:
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
        schema, place, {"properties", "patternProperties", "$defs", "definitions"},
        [](const Value& value) { return value.is_object(); }, "an object"));
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
    return Require(
        schema, place, {"required"},
        [](const Value& value) {
          return value.is_array() && std::ranges::all_of(value.as_array(), &Value::is_string);
        },
        "a list of strings");
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

  Status CheckWords(const Value& schema, const std::string& place) const {
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
    if (const Value* format = schema.Find("format")) {
      if (!Contains(kFormats, format->as_string())) {
        return Wrong(place, fmt::format("`format` {} is not known; known are {}",
                                        json::Write(*format), fmt::join(kFormats, ", ")));
      }
    }
    if (const Value* pattern = schema.Find("pattern")) {
      const Status good = CheckConstraintText(ConstraintKind::kRegex, pattern->as_string());
      if (!good) return Wrong(place, fmt::format("`pattern`: {}", good.error().message));
    }
    if (const Value* ref = schema.Find("$ref")) {
      const std::string& pointer = ref->as_string();
      if (pointer.starts_with('#') && Resolve(root_, pointer) == nullptr)
        return Wrong(place, fmt::format("`$ref` {} leads nowhere", json::Write(*ref)));
    }
    const Value* unique = schema.Find("uniqueItems");
    if (unique != nullptr && !(unique->is_bool() && !unique->as_bool()))
      return Wrong(place, "`uniqueItems` is not supported");
    if (schema.Find("contains") != nullptr) return Wrong(place, "`contains` is not supported");
    return {};
  }

  void Note(std::string_view keyword, const std::string& place) {
    not_enforced_.push_back(fmt::format("`{}` at {}", keyword, place));
  }

  void NoteNotEnforced(const Value& schema, const std::string& place) {
    const auto has = [&](std::string_view name) { return schema.Find(name) != nullptr; };
    for (const std::string_view name : kNotEnforced) {
      if (has(name)) Note(name, place);
    }
    const auto alone = std::ranges::find_if(kAlone, has);
    if (alone != std::end(kAlone)) {
      for (const auto& [name, value] : schema.as_object()) {
        const bool says_nothing = name == *alone || name == "type" ||
                                  Contains(kAnnotations, name) || Contains(kNotEnforced, name);
        if (!says_nothing) Note(fmt::format("{} beside {}", name, *alone), place);
      }
    }
    if (const Value* ref = schema.Find("$ref");
        ref != nullptr && !ref->as_string().starts_with('#'))
      Note("$ref", place);
    if (const Value* all = schema.Find("allOf"); all != nullptr && all->as_array().size() > 1)
      Note("allOf", place);
    if (has("pattern") || has("format")) {
      for (const char* name : {"minLength", "maxLength"}) {
        if (has(name)) Note(name, place);
      }
      if (has("pattern") && has("format")) Note("pattern", place);
    }
    if (const Value* multiple = schema.Find("multipleOf")) {
      const Value* type = schema.Find("type");
      const bool is_enforced = type != nullptr && *type == Value("integer") &&
                               multiple->is_integer() && multiple->as_integer() <= 100 &&
                               !has("minimum") && !has("maximum") && !has("exclusiveMinimum") &&
                               !has("exclusiveMaximum");
      if (!is_enforced) Note("multipleOf", place);
    }
  }

  Status CheckParts(const Value& schema, const std::string& place, int depth) {
    const auto check = [&](const Value& part, auto... names) {
      std::string inner = place;
      ((inner += fmt::format("/{}", names)), ...);
      return Check(part, inner, depth + 1);
    };
    for (const char* name : {"items", "additionalProperties", "propertyNames", "not", "if", "then",
                             "else", "unevaluatedProperties", "unevaluatedItems"}) {
      if (const Value* part = schema.Find(name)) RETURN_IF_ERROR(check(*part, name));
    }
    for (const char* name : {"anyOf", "oneOf", "allOf", "prefixItems"}) {
      const Value* parts = schema.Find(name);
      for (size_t i = 0; parts != nullptr && i < parts->as_array().size(); ++i)
        RETURN_IF_ERROR(check(parts->as_array()[i], name, i));
    }
    for (const char* name : {"properties", "patternProperties", "$defs", "definitions"}) {
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
  std::vector<std::string>& not_enforced_;
};

}  // namespace

Result<CheckedSchema> CheckJsonSchema(const Value& schema, bool strict) {
  CheckedSchema checked;
  SchemaChecker checker(schema, checked.not_enforced);
  RETURN_IF_ERROR(checker.Check(schema, "#", 1));
  if (strict && !checked.not_enforced.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("with `strict` every keyword must be enforced, and these cannot be: {}",
                            fmt::join(checked.not_enforced, ", ")));
  }
  checked.schema = schema;
  return checked;
}

}  // namespace sluice
