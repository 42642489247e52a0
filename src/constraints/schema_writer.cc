// Writes parts as a schema, with the keywords that the engine enforces.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "constraints/schema_rewriter.h"
#include "constraints/string_formats.h"
#include "constraints/string_pattern.h"

namespace sluice {
namespace {

using json::Value;

constexpr double kMostWhole = 9007199254740992.0;  // 2^53: every smaller integer is exact as a
                                                   // double
constexpr double kDecimals = 1e6;                  // the engine's number ranges have six decimals
constexpr double kMostMultiple = 100;              // limited, because the engine makes a rule for
                                                   // each remainder
constexpr double kMostListed = 1000;               // maximum number of multiples between two bounds
                                                   // that are listed
constexpr size_t kMostUnique = 12;  // maximum number of values in a list without repetitions
constexpr size_t kMostArrangements = 2000;

Value TypeOnly(std::string_view type) {
  return Value(Value::Object{{"type", Value(type)}});
}

bool HasSixDecimals(double x) {
  return std::abs(x) < kMostWhole / kDecimals && std::round(x * kDecimals) / kDecimals == x;
}

// Replaces whole doubles with integers (1.0 with 1), also inside arrays and objects.
Value PlainNumbers(const Value& value) {
  if (value.is_double() && value.as_double() == std::floor(value.as_double()) &&
      std::abs(value.as_double()) < kMostWhole)
    return Value(static_cast<int64_t>(value.as_double()));
  if (value.is_array()) {
    Value::Array items;
    for (const Value& item : value.as_array()) items.push_back(PlainNumbers(item));
    return Value(std::move(items));
  }
  if (value.is_object()) {
    Value::Object members;
    for (const auto& [name, member] : value.as_object())
      members.emplace_back(name, PlainNumbers(member));
    return Value(std::move(members));
  }
  return value;
}

// Whether the engine, which prints 17 digits, prints the number unchanged.
bool IsWrittenAlike(const Value& value) {
  if (value.is_big_integer()) return false;
  if (value.is_double()) {
    char text[40];
    std::snprintf(text, sizeof(text), "%.17g", value.as_double());
    return json::Write(value) == text;
  }
  if (value.is_array()) return std::ranges::all_of(value.as_array(), IsWrittenAlike);
  if (value.is_object()) {
    return std::ranges::all_of(value.as_object(), [](const Value::Member& member) {
      return IsWrittenAlike(member.second);
    });
  }
  return true;
}

void WriteSizes(const Part& part, const char* least, const char* most, Value& schema) {
  if (part.least_size > 0) schema.Set(least, Value(part.least_size));
  if (part.most_size != Part::kNoLimit) schema.Set(most, Value(part.most_size));
}

// Lists all arrays of `least` to `most` distinct values, in every order.
class Arrangements {
 public:
  Arrangements(const std::vector<Value>& values, size_t least, size_t most)
      : values_(values), least_(least), most_(most), is_used_(values.size()) {}
  // Returns an empty list if there are too many.
  std::vector<Value> All() {
    Extend();
    if (all_.size() > kMostArrangements) all_.clear();
    return std::move(all_);
  }

 private:
  void Extend() {
    if (all_.size() > kMostArrangements) return;
    if (current_.size() >= least_) all_.emplace_back(current_);
    if (current_.size() == most_) return;
    for (size_t i = 0; i < values_.size(); ++i) {
      if (is_used_[i]) continue;
      is_used_[i] = true;
      current_.push_back(values_[i]);
      Extend();
      current_.pop_back();
      is_used_[i] = false;
    }
  }

  const std::vector<Value>& values_;
  const size_t least_, most_;
  std::vector<bool> is_used_;
  Value::Array current_;
  std::vector<Value> all_;
};

bool NeedsEscapes(std::string_view name) {
  return std::ranges::any_of(name, [](char c) {
    return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

bool BeginAlike(std::string_view a, std::string_view b) {
  const size_t size = std::min(a.size(), b.size());
  return a.substr(0, size) == b.substr(0, size);
}

}  // namespace

Value SchemaRewriter::Write(const Parts& parts) {
  if (IsAnything(parts)) return Value(Value::Object{});
  Value::Array options;
  for (const Part& part : parts) {
    Value option = WritePart(part);
    const bool is_new = !option.is_bool() && std::ranges::find(options, option) == options.end();
    if (is_new) options.push_back(std::move(option));
  }
  if (options.empty()) return Value(false);
  if (options.size() == 1) return std::move(options[0]);
  return Value(Value::Object{{"anyOf", Value(std::move(options))}});
}

Value SchemaRewriter::WritePart(const Part& part) {
  if (!Spend()) return Value(Value::Object{});
  const bool is_empty = part.least_size > part.most_size || part.least > part.most ||
                        (part.least == part.most && (part.above_least || part.below_most));
  if (is_empty) return Value(false);
  switch (part.kind) {
    case PartKind::kNull: return TypeOnly("null");
    case PartKind::kBoolean: return TypeOnly("boolean");
    case PartKind::kNumber: return WriteNumber(part);
    case PartKind::kString: return WriteString(part);
    case PartKind::kArray: return WriteArray(part);
    case PartKind::kObject: return WriteObject(part);
    case PartKind::kValues: return WriteValues(part.values, part.place);
  }
  return Value(false);
}

Value SchemaRewriter::WriteValues(const std::vector<Value>& values, const std::string& place) {
  Value::Array listed, options;
  for (const Value& value : values) {
    const Value plain = PlainNumbers(value);
    if (plain.is_double() && !IsWrittenAlike(plain) && HasSixDecimals(plain.as_double())) {
      options.push_back(
          Value(Value::Object{{"type", "number"}, {"minimum", plain}, {"maximum", plain}}));
    } else {
      if (!IsWrittenAlike(plain)) Note("enum", place);
      listed.push_back(plain);
    }
  }
  if (!listed.empty())
    options.insert(options.begin(), Value(Value::Object{{"enum", Value(std::move(listed))}}));
  if (options.size() == 1) return std::move(options[0]);
  return Value(Value::Object{{"anyOf", Value(std::move(options))}});
}

Value SchemaRewriter::WriteNumber(const Part& part) {
  const double multiple = part.multiple_of;
  const bool is_integer = part.is_integer || (multiple >= 1 && multiple == std::floor(multiple));
  Value schema = TypeOnly(is_integer ? "integer" : "number");
  if (!is_integer) {
    if (multiple != 0) Note("multipleOf", part.place);
    const auto bound = [&](double value, const char* name) {
      if (!HasSixDecimals(value)) Note(name, part.place);
      schema.Set(name, Value(value));
    };
    if (part.least != -Part::kInfinity)
      bound(part.least, part.above_least ? "exclusiveMinimum" : "minimum");
    if (part.most != Part::kInfinity)
      bound(part.most, part.below_most ? "exclusiveMaximum" : "maximum");
    return schema;
  }
  double least = std::ceil(part.least), most = std::floor(part.most);
  if (part.above_least && least == part.least) ++least;
  if (part.below_most && most == part.most) --most;
  if (least > most) return Value(false);
  const bool has_least = least != -Part::kInfinity, has_most = most != Part::kInfinity;
  // If the fraction divides 1, every integer is a multiple of it.
  if (multiple != 0 && std::fmod(1.0, multiple) != 0) {
    if (has_least && has_most && multiple == std::floor(multiple) &&
        (most - least) / multiple <= kMostListed && std::abs(least) + std::abs(most) < kMostWhole) {
      std::vector<Value> values;
      for (double i = std::ceil(least / multiple) * multiple; i <= most; i += multiple)
        values.emplace_back(static_cast<int64_t>(i));
      return values.empty() ? Value(false) : WriteValues(values, part.place);
    }
    if (!has_least && !has_most && multiple == std::floor(multiple) && multiple <= kMostMultiple) {
      schema.Set("multipleOf", Value(static_cast<int64_t>(multiple)));
    } else {
      Note("multipleOf", part.place);
    }
  }
  const auto bound = [&](double value, const char* name) {
    if (std::abs(value) >= kMostWhole) return Note(name, part.place);
    schema.Set(name, Value(static_cast<int64_t>(value)));
  };
  if (has_least) bound(least, "minimum");
  if (has_most) bound(most, "maximum");
  return schema;
}

Value SchemaRewriter::WriteString(const Part& part) {
  Value schema = TypeOnly("string");
  const bool has_size = part.least_size > 0 || part.most_size != Part::kNoLimit;
  if (part.pattern.empty() && part.format.empty()) {
    WriteSizes(part, "minLength", "maxLength", schema);
    return schema;
  }
  if (!part.format.empty()) {
    if (const std::optional<std::string> pattern = PatternOfFormat(part.format))
      schema.Set("pattern", Value(WithOwnEnds(*pattern)));
    else
      schema.Set("format", Value(part.format));
    if (!part.pattern.empty()) Note("pattern", part.place);
  } else {
    if (MayBreakStrings(part.pattern)) Note("pattern", part.place);
    const std::optional<std::string> bounded =
        has_size ? BoundedPattern(part.pattern, part.least_size, part.most_size) : std::nullopt;
    schema.Set("pattern", Value(bounded ? *bounded : WithOwnEnds(part.pattern)));
    if (bounded) return schema;
  }
  if (part.least_size > 0) Note("minLength", part.place);
  if (part.most_size != Part::kNoLimit) Note("maxLength", part.place);
  return schema;
}

Value SchemaRewriter::WriteArray(Part part) {
  if (part.is_closed_by_default && !part.rest_is_stated) part.rest = NothingAt(part.place);
  Value::Array prefix;
  for (const SchemaPieces& item : part.prefix) {
    if (static_cast<int64_t>(prefix.size()) >= part.most_size) break;
    Value schema = Rewrite(item);
    if (schema.is_bool()) {
      part.most_size = static_cast<int64_t>(prefix.size());
      break;
    }
    prefix.push_back(std::move(schema));
  }
  Value rest = Rewrite(part.rest);
  const auto num_prefix = static_cast<int64_t>(prefix.size());
  if (part.most_size <= num_prefix || rest.is_bool()) {
    part.most_size = std::min(part.most_size, num_prefix);
    rest = Value(false);
  }
  if (part.least_size > part.most_size) return Value(false);
  if (part.unique && part.most_size > 1) return WriteUnique(part);
  Value schema = TypeOnly("array");
  if (!prefix.empty()) schema.Set("prefixItems", Value(std::move(prefix)));
  const bool is_free = part.prefix.empty() && rest == Value(Value::Object{}) &&
                       part.least_size == 0 && part.most_size == Part::kNoLimit;
  if (is_free) return schema;
  schema.Set("items", rest);
  if (rest.is_bool()) part.most_size = Part::kNoLimit;
  WriteSizes(part, "minItems", "maxItems", schema);
  return schema;
}

Value SchemaRewriter::WriteUnique(const Part& part) {
  std::optional<std::vector<Value>> values;
  if (part.prefix.empty() && !part.rest.empty())
    values = Enumerate(PartsOf(part.rest), kMostUnique);
  std::vector<Value> all;
  if (values) {
    const size_t most = std::min(static_cast<size_t>(part.most_size), values->size());
    const auto least = static_cast<size_t>(part.least_size);
    if (least > most) return Value(false);
    all = Arrangements(*values, least, most).All();
    Spend(all.size());
  }
  if (!all.empty()) return WriteValues(all, part.place);
  refused_ = Fail(ErrorCode::kInvalidArgument,
                  fmt::format("at {}: `uniqueItems` is supported only for lists of a few known "
                              "values, such as those of a short `enum`",
                              part.place))
                 .value();
  return TypeOnly("array");
}

// Adds properties that only `required` names, and forbids those whose name is not allowed.
void SchemaRewriter::CompleteProperties(Part& part) {
  for (const std::string& name : part.required) {
    if (part.FindProperty(name) != nullptr) continue;
    if (!part.patterns.empty()) Note("required", part.place);
    part.properties.push_back({name, part.patterns.empty() ? part.rest : SchemaPieces()});
  }
  for (Part::Property& property : part.properties) {
    if (part.names.empty()) break;
    const std::optional<bool> holds = Holds(Value(property.name), part.names);
    if (!holds) Note("propertyNames", part.place);
    if (!holds.value_or(true)) property.schemas = NothingAt(part.place);
  }
}

void SchemaRewriter::WritePatterns(const Part& part, bool is_closed, Value& schema) {
  if (!is_closed) Note("patternProperties", part.place);
  Value patterns(Value::Object{});
  for (size_t i = 0; i < part.patterns.size(); ++i) {
    const std::string& pattern = part.patterns[i].name;
    const std::string_view beginning = LiteralBeginning(pattern);
    // A name that matches two patterns would have to satisfy the schemas of both.
    bool is_apart = !MayBreakStrings(pattern);
    for (const Part::Property& property : part.properties)
      is_apart = is_apart && !BeginAlike(beginning, property.name);
    for (size_t k = 0; k < i; ++k)
      is_apart = is_apart && !BeginAlike(beginning, LiteralBeginning(part.patterns[k].name));
    if (!is_apart) Note("patternProperties", part.place);
    Value value = Rewrite(part.patterns[i].schemas);
    if (!value.is_bool()) patterns.Set(WithOwnEnds(pattern), std::move(value));
  }
  if (!patterns.as_object().empty()) schema.Set("patternProperties", std::move(patterns));
}

Value SchemaRewriter::WriteObject(Part part) {
  if (part.is_closed_by_default && !part.rest_is_stated) part.rest = NothingAt(part.place);
  CompleteProperties(part);
  Value rest = Rewrite(part.rest);
  Value names(Value::Object{});
  if (!part.names.empty()) {
    static const Value kString(Value::Object{{"type", "string"}});
    names = Rewrite(Together(part.names, {{&kString, part.place}}));
    if (names.is_bool()) rest = Value(false);
  }
  const bool is_closed = rest.is_bool();
  Value::Object properties;
  for (const Part::Property& property : part.properties) {
    Value value = Rewrite(property.schemas);
    // If a name needs escapes, the engine also accepts it as the name of an additional property.
    if (!is_closed && NeedsEscapes(property.name)) Note("properties", part.place);
    if (!value.is_bool()) {
      properties.emplace_back(property.name, std::move(value));
    } else if (part.Requires(property.name)) {
      return Value(false);
    } else if (!is_closed || !part.patterns.empty()) {
      notes_.push_back(
          fmt::format("a property that must be absent at {}",
                      property.schemas.empty() ? part.place : property.schemas[0].place));
    }
  }
  const auto num_properties = static_cast<int64_t>(properties.size());
  const auto num_required = static_cast<int64_t>(part.required.size());
  const bool is_known = is_closed && part.patterns.empty();
  if (num_required > part.most_size || (is_known && num_properties < part.least_size))
    return Value(false);
  if (num_required >= part.least_size) part.least_size = 0;
  if (is_known && num_properties <= part.most_size) part.most_size = Part::kNoLimit;

  Value schema = TypeOnly("object");
  // A repeated name would count twice.
  if (!is_known && part.least_size > 1) Note("minProperties", part.place);
  if (!part.patterns.empty()) WritePatterns(part, is_closed, schema);
  if (!is_closed && names != TypeOnly("string") && names != Value(Value::Object{})) {
    if (!properties.empty() || !part.patterns.empty()) Note("propertyNames", part.place);
    schema.Set("propertyNames", std::move(names));
  }
  const bool is_free = properties.empty() && schema.as_object().size() == 1 &&
                       rest == Value(Value::Object{}) && part.least_size == 0 &&
                       part.most_size == Part::kNoLimit;
  if (is_free) return schema;
  if (!properties.empty()) schema.Set("properties", Value(std::move(properties)));
  if (!part.required.empty()) {
    Value::Array required;
    for (const std::string& name : part.required) required.emplace_back(name);
    schema.Set("required", Value(std::move(required)));
  }
  const bool is_anything = rest == Value(Value::Object{});
  schema.Set("additionalProperties", is_anything ? Value(true) : std::move(rest));
  WriteSizes(part, "minProperties", "maxProperties", schema);
  return schema;
}

}  // namespace sluice
