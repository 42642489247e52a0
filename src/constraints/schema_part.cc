#include "constraints/schema_part.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace sluice {
namespace {

using json::Value;

constexpr double kMostExact = 9007199254740992.0;  // 2^53

void IntersectNumbers(const Part& b, Part& both, std::vector<std::string_view>& lost) {
  both.is_integer |= b.is_integer;
  if (b.least > both.least || (b.least == both.least && b.above_least)) {
    both.least = b.least;
    both.above_least = b.above_least;
  }
  if (b.most < both.most || (b.most == both.most && b.below_most)) {
    both.most = b.most;
    both.below_most = b.below_most;
  }
  if (b.multiple_of == 0 || b.multiple_of == both.multiple_of) return;
  const auto is_whole = [](double x) { return x == std::floor(x) && x < kMostExact; };
  if (both.multiple_of == 0) {
    both.multiple_of = b.multiple_of;
  } else if (is_whole(both.multiple_of) && is_whole(b.multiple_of)) {
    const auto x = static_cast<int64_t>(both.multiple_of), y = static_cast<int64_t>(b.multiple_of);
    const double least_common =
        both.multiple_of / static_cast<double>(std::gcd(x, y)) * static_cast<double>(y);
    if (is_whole(least_common)) {
      both.multiple_of = least_common;
    } else {
      lost.push_back("multipleOf");
    }
  } else {
    lost.push_back("multipleOf");
  }
}

void IntersectStrings(const Part& b, Part& both, std::vector<std::string_view>& lost) {
  if (both.pattern.empty()) {
    both.pattern = b.pattern;
  } else if (!b.pattern.empty() && b.pattern != both.pattern) {
    lost.push_back("pattern");
  }
  if (both.format.empty()) {
    both.format = b.format;
  } else if (!b.format.empty() && b.format != both.format) {
    lost.push_back("format");
  }
}

void IntersectArrays(const Part& a, const Part& b, Part& both) {
  const size_t size = std::max(a.prefix.size(), b.prefix.size());
  both.prefix.resize(size);
  for (size_t i = 0; i < size; ++i) {
    both.prefix[i] = Together(i < a.prefix.size() ? a.prefix[i] : a.rest,
                              i < b.prefix.size() ? b.prefix[i] : b.rest);
  }
  both.unique |= b.unique;
}

// Adds the schemas that `part` has for a property that it does not list.
void AddUnlisted(const Part& part, SchemaPieces& schemas, std::vector<std::string_view>& lost) {
  // This function cannot decide whether the name matches a regex.
  if (!part.patterns.empty()) {
    lost.push_back("patternProperties");
  } else {
    schemas = Together(std::move(schemas), part.rest);
  }
}

void IntersectObjects(const Part& a, const Part& b, Part& both,
                      std::vector<std::string_view>& lost) {
  for (Part::Property& property : both.properties) {
    if (const Part::Property* other = b.FindProperty(property.name)) {
      property.schemas = Together(std::move(property.schemas), other->schemas);
    } else {
      AddUnlisted(b, property.schemas, lost);
    }
  }
  for (const Part::Property& property : b.properties) {
    if (a.FindProperty(property.name) != nullptr) continue;
    both.properties.push_back(property);
    AddUnlisted(a, both.properties.back().schemas, lost);
  }
  for (const std::string& name : b.required) {
    if (!both.Requires(name)) both.required.push_back(name);
  }
  if (!b.patterns.empty()) {
    // A property that matches a pattern of `b` must also satisfy `a`. If `a` has patterns or a
    // schema for all other names, `both` cannot express this.
    const bool is_alike = !a.patterns.empty() || a.rest.empty();
    if (is_alike && a.patterns.empty()) {
      both.patterns = b.patterns;
    } else {
      lost.push_back("patternProperties");
    }
  } else if (!a.patterns.empty() && !b.rest.empty()) {
    lost.push_back("patternProperties");
  }
  both.names = Together(std::move(both.names), b.names);
}

}  // namespace

SchemaPieces NothingAt(std::string place) {
  static const Value kNothing(false);
  return {{&kNothing, std::move(place)}};
}

SchemaPieces Together(SchemaPieces a, const SchemaPieces& b) {
  for (const SchemaPiece& piece : b) {
    const bool is_there = std::ranges::any_of(
        a, [&](const SchemaPiece& other) { return other.schema == piece.schema; });
    if (!is_there) a.push_back(piece);
  }
  return a;
}

const Part::Property* Part::FindProperty(std::string_view name) const {
  const auto found = std::ranges::find(properties, name, &Property::name);
  return found == properties.end() ? nullptr : &*found;
}

bool Part::Requires(std::string_view name) const {
  return std::ranges::find(required, name) != required.end();
}

bool Part::IsFree() const {
  return kind != PartKind::kValues && !is_integer && least == -kInfinity && most == kInfinity &&
         multiple_of == 0 && least_size == 0 && most_size == kNoLimit && pattern.empty() &&
         format.empty() && prefix.empty() && !unique && properties.empty() && required.empty() &&
         patterns.empty() && names.empty() && rest.empty() && !rest_is_stated &&
         !is_closed_by_default;
}

Parts Anything(const std::string& place) {
  Parts parts;
  for (const PartKind kind : {PartKind::kNumber, PartKind::kString, PartKind::kBoolean,
                              PartKind::kNull, PartKind::kArray, PartKind::kObject}) {
    parts.emplace_back();
    parts.back().kind = kind;
    parts.back().place = place;
  }
  return parts;
}

bool IsAnything(const Parts& parts) {
  constexpr size_t kKinds = 6;
  return parts.size() == kKinds && std::ranges::all_of(parts, &Part::IsFree);
}

Part PartOfType(std::string_view type, const std::string& place) {
  Part part;
  part.place = place;
  part.is_integer = type == "integer";
  part.kind = type == "null"      ? PartKind::kNull
              : type == "boolean" ? PartKind::kBoolean
              : type == "string"  ? PartKind::kString
              : type == "array"   ? PartKind::kArray
              : type == "object"  ? PartKind::kObject
                                  : PartKind::kNumber;
  return part;
}

Part PartOfValues(std::vector<Value> values, const std::string& place) {
  Part part;
  part.kind = PartKind::kValues;
  part.values = std::move(values);
  part.place = place;
  return part;
}

void AddParts(Parts& parts, const Parts& more) {
  parts.insert(parts.end(), more.begin(), more.end());
}

bool SameJson(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a == b;
  if (a.type() != b.type()) return false;
  if (a.is_array()) return std::ranges::equal(a.as_array(), b.as_array(), SameJson);
  if (!a.is_object()) return a == b;
  return a.as_object().size() == b.as_object().size() &&
         std::ranges::all_of(a.as_object(), [&](const Value::Member& member) {
           const Value* other = b.Find(member.first);
           return other != nullptr && SameJson(member.second, *other);
         });
}

bool IsOfKind(const Value& value, PartKind kind) {
  switch (kind) {
    case PartKind::kNull: return value.is_null();
    case PartKind::kBoolean: return value.is_bool();
    case PartKind::kNumber: return value.is_number();
    case PartKind::kString: return value.is_string();
    case PartKind::kArray: return value.is_array();
    case PartKind::kObject: return value.is_object();
    case PartKind::kValues: return true;
  }
  return false;
}

std::optional<Part> Intersect(const Part& a, const Part& b, std::vector<std::string_view>& lost) {
  if (a.kind != b.kind) return std::nullopt;
  Part both = a;
  both.least_size = std::max(a.least_size, b.least_size);
  both.most_size = std::min(a.most_size, b.most_size);
  if (both.least_size > both.most_size) return std::nullopt;
  if (a.kind == PartKind::kNumber) IntersectNumbers(b, both, lost);
  if (a.kind == PartKind::kString) IntersectStrings(b, both, lost);
  if (a.kind == PartKind::kArray) IntersectArrays(a, b, both);
  if (a.kind == PartKind::kObject) IntersectObjects(a, b, both, lost);
  both.rest = Together(std::move(both.rest), b.rest);
  both.rest_is_stated |= b.rest_is_stated;
  both.is_closed_by_default |= b.is_closed_by_default;
  if (both.least > both.most || (both.least == both.most && (both.above_least || both.below_most)))
    return std::nullopt;
  return both;
}

}  // namespace sluice
