// Converts the keywords of a schema to parts.
#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "constraints/schema_rewriter.h"
#include "constraints/string_formats.h"

namespace sluice {
namespace {

using json::Value;

constexpr size_t kMaxExclusive = 6;  // maximum number of `oneOf` branches that are made exclusive
// If the schema has one of these, `unevaluatedProperties` and `unevaluatedItems` differ from the
// "additional" keywords.
constexpr std::string_view kInPlace[] = {"$ref",  "allOf", "anyOf",
                                         "oneOf", "if",    "dependentSchemas"};
constexpr std::string_view kOfNumbers[] = {"minimum", "maximum", "exclusiveMinimum",
                                           "exclusiveMaximum", "multipleOf"};
constexpr std::string_view kOfStrings[] = {"minLength", "maxLength", "pattern", "format"};
constexpr std::string_view kOfArrays[] = {"minItems", "maxItems", "uniqueItems"};
constexpr std::string_view kOfObjects[] = {"required", "patternProperties", "propertyNames",
                                           "minProperties", "maxProperties"};
constexpr std::string_view kImplyObject[] = {"properties", "additionalProperties",
                                             "unevaluatedProperties"};
constexpr std::string_view kImplyArray[] = {"items", "prefixItems", "unevaluatedItems"};

bool HasOneOf(const Value& schema, std::span<const std::string_view> names) {
  return std::ranges::any_of(names,
                             [&](std::string_view name) { return schema.Find(name) != nullptr; });
}

int64_t SizeOf(const Value& size) {
  const double value = size.as_double();
  return value < 9e15 ? static_cast<int64_t>(value) : Part::kNoLimit;
}

void ReadSizes(const Value& schema, std::string_view least, std::string_view most, Part& part) {
  if (const Value* size = schema.Find(least)) part.least_size = SizeOf(*size);
  if (const Value* size = schema.Find(most)) part.most_size = SizeOf(*size);
}

void ReadNumber(const Value& schema, Part& part) {
  const auto tighten = [&](const char* name, double Part::*bound, bool Part::*excluded,
                           bool excludes, double sign) {
    const Value* value = schema.Find(name);
    if (value == nullptr) return;
    const double found = value->as_double();
    if (sign * found > sign * (part.*bound) || (found == part.*bound && excludes)) {
      part.*bound = found;
      part.*excluded = excludes;
    }
  };
  tighten("minimum", &Part::least, &Part::above_least, false, 1);
  tighten("exclusiveMinimum", &Part::least, &Part::above_least, true, 1);
  tighten("maximum", &Part::most, &Part::below_most, false, -1);
  tighten("exclusiveMaximum", &Part::most, &Part::below_most, true, -1);
  if (const Value* multiple = schema.Find("multipleOf")) part.multiple_of = multiple->as_double();
}

void ReadString(const Value& schema, Part& part) {
  ReadSizes(schema, "minLength", "maxLength", part);
  if (const Value* pattern = schema.Find("pattern")) part.pattern = pattern->as_string();
  const Value* format = schema.Find("format");
  if (format != nullptr && IsKnownFormat(format->as_string())) part.format = format->as_string();
}

}  // namespace

bool SchemaRewriter::LeadsTo(const Value& from, const Value& to) {
  std::vector<const Value*> seen{&from};
  for (size_t i = 0; i < seen.size() && Spend(); ++i) {
    const Value& schema = *seen[i];
    if (&schema == &to) return true;
    if (!schema.is_object()) continue;
    const auto add = [&](const Value& next) {
      if (std::ranges::find(seen, &next) == seen.end()) seen.push_back(&next);
    };
    if (const Value* all = schema.Find("allOf")) std::ranges::for_each(all->as_array(), add);
    const Value* ref = schema.Find("$ref");
    if (IsLocalReference(ref)) add(*ResolvePointer(root_, ref->as_string()));
  }
  return false;
}

SchemaPieces SchemaRewriter::Flatten(const SchemaPieces& pieces) {
  SchemaPieces flat = Together({}, pieces);
  for (size_t i = 0; i < flat.size() && Spend(); ++i) {
    const SchemaPiece piece = flat[i];
    if (!piece.schema->is_object()) continue;
    if (const Value* all = piece.schema->Find("allOf")) {
      for (size_t k = 0; k < all->as_array().size(); ++k) {
        flat = Together(std::move(flat),
                        {Child(piece, all->as_array()[k], "allOf", std::to_string(k))});
      }
    }
    if (const Value* ref = piece.schema->Find("$ref"); IsLocalReference(ref)) {
      const std::string& pointer = ref->as_string();
      const Value* const target = ResolvePointer(root_, pointer);
      // A $ref that leads back to its own schema constrains nothing, so it is reported as not
      // enforced.
      if (LeadsTo(*target, *piece.schema)) Note("$ref", piece.place);
      flat = Together(std::move(flat), {{target, pointer}});
    } else if (ref != nullptr) {
      Note("$ref", piece.place);
    }
    if (piece.schema->Find("$dynamicRef") != nullptr) Note("$dynamicRef", piece.place);
  }
  return flat;
}

Parts SchemaRewriter::PartsOf(const SchemaPieces& pieces) {
  const std::string place = pieces.empty() ? "#" : pieces[0].place;
  if (++depth_ > kMaxDepth) is_too_deep_ = true;
  Parts parts = Anything(place);
  if (Spend(4)) {
    const SchemaPieces flat = Flatten(pieces);
    for (const SchemaPiece& piece : flat) parts = Both(parts, OwnParts(piece));
    for (const SchemaPiece& piece : flat) {
      if (piece.schema->is_object()) parts = WithApplicators(std::move(parts), piece);
    }
    for (const SchemaPiece& piece : flat) ApplyUnevaluated({piece, pieces[0]}, parts);
  }
  --depth_;
  return parts;
}

Part SchemaRewriter::ObjectPart(const SchemaPiece& piece) {
  const Value& schema = *piece.schema;
  Part part = PartOfType("object", piece.place);
  ReadSizes(schema, "minProperties", "maxProperties", part);
  if (const Value* properties = schema.Find("properties")) {
    for (const auto& [name, property] : properties->as_object())
      part.properties.push_back({name, {Child(piece, property, "properties", name)}});
    part.is_closed_by_default = true;
  }
  if (const Value* patterns = schema.Find("patternProperties")) {
    for (const auto& [name, property] : patterns->as_object())
      part.patterns.push_back({name, {Child(piece, property, "patternProperties", name)}});
    part.is_closed_by_default = true;
  }
  if (const Value* required = schema.Find("required")) {
    for (const Value& name : required->as_array()) {
      if (!part.Requires(name.as_string())) part.required.push_back(name.as_string());
    }
  }
  if (const Value* names = schema.Find("propertyNames"))
    part.names = {Child(piece, *names, "propertyNames")};
  const char* rest = schema.Find("additionalProperties") != nullptr ? "additionalProperties"
                     : HasOneOf(schema, kInPlace)                   ? "none"
                                                                    : "unevaluatedProperties";
  if (const Value* others = schema.Find(rest)) {
    if (*others != Value(true)) part.rest = {Child(piece, *others, rest)};
    part.rest_is_stated = true;
  }
  return part;
}

Part SchemaRewriter::ArrayPart(const SchemaPiece& piece) {
  const Value& schema = *piece.schema;
  Part part = PartOfType("array", piece.place);
  ReadSizes(schema, "minItems", "maxItems", part);
  // Before draft 2020-12, a tuple was a list in `items`, with `additionalItems` for the rest.
  const Value* items = schema.Find("items");
  const bool is_tuple = items != nullptr && items->is_array();
  const char* const tuple = is_tuple ? "items" : "prefixItems";
  if (const Value* prefix = schema.Find(tuple)) {
    for (size_t i = 0; i < prefix->as_array().size(); ++i)
      part.prefix.push_back({Child(piece, prefix->as_array()[i], tuple, std::to_string(i))});
    part.is_closed_by_default = true;
  }
  const char* const behind = is_tuple ? "additionalItems" : "items";
  const char* rest = schema.Find(behind) != nullptr ? behind
                     : HasOneOf(schema, kInPlace)   ? "none"
                                                    : "unevaluatedItems";
  if (const Value* others = schema.Find(rest)) {
    if (*others != Value(true)) part.rest = {Child(piece, *others, rest)};
    part.rest_is_stated = true;
  }
  const Value* unique = schema.Find("uniqueItems");
  part.unique = unique != nullptr && unique->as_bool();
  return part;
}

Parts SchemaRewriter::OwnParts(const SchemaPiece& piece) {
  const Value& schema = *piece.schema;
  if (schema.is_bool()) return schema.as_bool() ? Anything(piece.place) : Parts();
  Parts parts;
  if (const Value* type = schema.Find("type"); type != nullptr && type->is_string()) {
    parts.push_back(PartOfType(type->as_string(), piece.place));
  } else if (type != nullptr && !type->as_array().empty()) {
    for (const Value& name : type->as_array())
      parts.push_back(PartOfType(name.as_string(), piece.place));
  } else if (HasOneOf(schema, kImplyObject)) {
    parts.push_back(PartOfType("object", piece.place));
  } else if (HasOneOf(schema, kImplyArray)) {
    parts.push_back(PartOfType("array", piece.place));
  } else {
    parts = Anything(piece.place);
  }
  for (Part& part : parts) {
    if (part.kind == PartKind::kNumber && HasOneOf(schema, kOfNumbers)) ReadNumber(schema, part);
    if (part.kind == PartKind::kString && HasOneOf(schema, kOfStrings)) {
      ReadString(schema, part);
      const Value* format = schema.Find("format");
      if (format != nullptr && part.format.empty()) Note("format", piece.place);
    }
    if (part.kind == PartKind::kArray &&
        (HasOneOf(schema, kOfArrays) || HasOneOf(schema, kImplyArray)))
      part = ArrayPart(piece);
    if (part.kind == PartKind::kObject &&
        (HasOneOf(schema, kOfObjects) || HasOneOf(schema, kImplyObject)))
      part = ObjectPart(piece);
  }
  if (const Value* values = schema.Find("enum"))
    parts = Both({PartOfValues(values->as_array(), piece.place)}, parts);
  if (const Value* value = schema.Find("const"))
    parts = Both({PartOfValues({*value}, piece.place)}, parts);
  return parts;
}

void SchemaRewriter::ApplyUnevaluated(const SchemaPieces& piece_and_root, Parts& parts) {
  const SchemaPiece& piece = piece_and_root[0];
  if (!piece.schema->is_object() || !HasOneOf(*piece.schema, kInPlace)) return;
  const std::pair<const char*, PartKind> kKeywords[] = {
      {"unevaluatedProperties", PartKind::kObject}, {"unevaluatedItems", PartKind::kArray}};
  for (const auto& [keyword, kind] : kKeywords) {
    const Value* others = piece.schema->Find(keyword);
    if (others == nullptr || *others == Value(true)) continue;
    // The unevaluated rest is known only if all constraints of the parts come from this schema and
    // apply unconditionally.
    bool is_known = piece.schema == piece_and_root[1].schema;
    for (const SchemaPiece& part : Flatten({piece})) {
      const Value& schema = *part.schema;
      is_known = is_known &&
                 !(schema.is_object() &&
                   (schema.Find("anyOf") != nullptr || schema.Find("oneOf") != nullptr ||
                    schema.Find("if") != nullptr || schema.Find("dependentSchemas") != nullptr));
    }
    for (Part& part : parts) {
      if (!is_known || part.kind == PartKind::kValues) {
        Note(keyword, piece.place);
        break;
      }
      if (part.kind != kind || part.rest_is_stated) continue;
      part.rest = {Child(piece, *others, keyword)};
      part.rest_is_stated = true;
    }
  }
}

Parts SchemaRewriter::WithApplicators(Parts parts, const SchemaPiece& piece) {
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const Value* branches = piece.schema->Find(keyword);
    if (branches != nullptr && branches->as_array().empty()) Note(keyword, piece.place);
  }
  if (const Value* branches = piece.schema->Find("anyOf");
      branches != nullptr && !branches->as_array().empty()) {
    Parts any;
    for (size_t i = 0; i < branches->as_array().size() && Spend(); ++i) {
      AddParts(any, PartsOf({Child(piece, branches->as_array()[i], "anyOf", std::to_string(i))}));
    }
    parts = Both(parts, any);
  }
  if (const Value* branches = piece.schema->Find("oneOf");
      branches != nullptr && !branches->as_array().empty())
    parts = WithOneOf(parts, piece, branches->as_array());
  if (const Value* other = piece.schema->Find("not")) {
    const size_t num_notes = notes_.size();
    const Parts taken = PartsOf({Child(piece, *other, "not")});
    const bool is_exact = notes_.size() == num_notes;
    notes_.resize(num_notes);
    std::optional<Parts> left = is_exact ? Without(parts, taken) : std::nullopt;
    if (left) {
      parts = *std::move(left);
    } else {
      Note("not", piece.place);
    }
  }
  parts = WithCondition(std::move(parts), piece);
  return WithDependents(std::move(parts), piece);
}

Parts SchemaRewriter::WithOneOf(const Parts& parts, const SchemaPiece& piece,
                                const Value::Array& branches) {
  std::vector<Parts> each, allowed;
  bool are_exact = true;
  for (size_t i = 0; i < branches.size() && Spend(); ++i) {
    const size_t num_notes = notes_.size();
    each.push_back(PartsOf({Child(piece, branches[i], "oneOf", std::to_string(i))}));
    are_exact = are_exact && notes_.size() == num_notes;
    allowed.push_back(Both(parts, each.back()));
  }
  bool are_apart = true;
  for (size_t i = 0; i < allowed.size() && are_apart; ++i) {
    for (size_t j = 0; j < i && are_apart; ++j) are_apart = AreApart(allowed[i], allowed[j]);
  }
  Parts one;
  if (are_apart) {
    for (const Parts& branch : allowed) AddParts(one, branch);
    return one;
  }
  bool is_known = are_exact && each.size() <= kMaxExclusive;
  for (size_t i = 0; i < each.size() && is_known; ++i) {
    std::optional<Parts> alone = allowed[i];
    for (size_t j = 0; j < each.size() && alone; ++j) {
      if (j != i) alone = Without(*alone, each[j]);
    }
    is_known = alone.has_value();
    if (is_known) AddParts(one, *alone);
  }
  if (is_known) return one;
  Note("oneOf", piece.place);
  one.clear();
  for (const Parts& branch : allowed) AddParts(one, branch);
  return one;
}

Parts SchemaRewriter::WithCondition(Parts parts, const SchemaPiece& piece) {
  const Value* condition = piece.schema->Find("if");
  const Value* then = piece.schema->Find("then");
  const Value* otherwise = piece.schema->Find("else");
  if (condition == nullptr || (then == nullptr && otherwise == nullptr)) return parts;
  const size_t num_notes = notes_.size();
  const Parts when = PartsOf({Child(piece, *condition, "if")});
  const bool is_exact = notes_.size() == num_notes;
  notes_.resize(num_notes);
  std::optional<Parts> no = is_exact ? Without(parts, when) : std::nullopt;
  if (!no) {
    Note("if", piece.place);
    return parts;
  }
  Parts both = Both(parts, when);
  if (then != nullptr) both = Both(both, PartsOf({Child(piece, *then, "then")}));
  if (otherwise != nullptr) no = Both(*no, PartsOf({Child(piece, *otherwise, "else")}));
  AddParts(both, *no);
  return both;
}

Parts SchemaRewriter::WithDependents(Parts parts, const SchemaPiece& piece) {
  for (const char* keyword : {"dependentRequired", "dependentSchemas"}) {
    const Value* dependents = piece.schema->Find(keyword);
    if (dependents == nullptr) continue;
    for (const auto& [name, needed] : dependents->as_object()) {
      Parts absent = Anything(piece.place);
      Part& without = absent.back();
      without.properties.push_back({name, NothingAt(fmt::format("{}/{}", piece.place, keyword))});
      Part with = PartOfType("object", piece.place);
      with.required.push_back(name);
      Parts present{with};
      if (needed.is_array()) {
        for (const Value& other : needed.as_array()) {
          if (!present[0].Requires(other.as_string()))
            present[0].required.push_back(other.as_string());
        }
      } else {
        present = Both(present, PartsOf({Child(piece, needed, keyword, name)}));
      }
      AddParts(absent, present);
      parts = Both(parts, absent);
    }
  }
  return parts;
}

}  // namespace sluice
