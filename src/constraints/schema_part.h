// The values that a JSON schema allows, as one part per kind of value. Schemas are combined in this
// form before they are written as a schema again.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sluice {

// A schema inside the client's document, which must outlive this object.
struct SchemaPiece {
  const json::Value* schema = nullptr;
  std::string place;  // JSON pointer
};

// Schemas that must all be satisfied. Empty: any value is allowed.
using SchemaPieces = std::vector<SchemaPiece>;

SchemaPieces NothingAt(std::string place);
// Returns the pieces of `a` and `b`, without duplicates.
SchemaPieces Together(SchemaPieces a, const SchemaPieces& b);

enum class PartKind { kNull, kBoolean, kNumber, kString, kArray, kObject, kValues };

struct Part {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  struct Property {
    std::string name;  // in `patterns`: the regex
    SchemaPieces schemas;
  };

  PartKind kind = PartKind::kNull;
  std::string place;

  std::vector<json::Value> values;  // kValues: the allowed values

  // For kNumber:
  bool is_integer = false;
  double least = -kInfinity, most = kInfinity;
  bool above_least = false, below_most = false;  // whether the bound itself is excluded
  double multiple_of = 0;                        // 0: no restriction

  // The size of a string in characters, of an array in items, or of an object in properties.
  int64_t least_size = 0, most_size = kNoLimit;

  // For kString; "": none.
  std::string pattern, format;

  // For kArray:
  std::vector<SchemaPieces> prefix;
  bool unique = false;

  // For kObject:
  std::vector<Property> properties;
  std::vector<std::string> required;
  std::vector<Property> patterns;
  SchemaPieces names;

  // Schemas for all other items (those after the prefix), or for all other properties (those that
  // are not listed and match no pattern).
  SchemaPieces rest;
  bool rest_is_stated = false;  // whether the client has set `rest`
  // If true and the client has not set `rest`, no other items or properties are allowed.
  bool is_closed_by_default = false;

  const Property* FindProperty(std::string_view name) const;
  bool Requires(std::string_view name) const;
  // Whether the part allows all values of its type.
  bool IsFree() const;
};

using Parts = std::vector<Part>;

// Returns one part of every kind, without constraints.
Parts Anything(const std::string& place);
bool IsAnything(const Parts& parts);
// Returns the unconstrained part for the name of a type; "integer" is a kNumber.
Part PartOfType(std::string_view type, const std::string& place);

Part PartOfValues(std::vector<json::Value> values, const std::string& place);
void AddParts(Parts& parts, const Parts& more);

// Equality as in JSON Schema: 1 equals 1.0, but not true.
bool SameJson(const json::Value& a, const json::Value& b);
bool IsOfKind(const json::Value& value, PartKind kind);

// Returns the values that both parts allow; both have the same kind, other than kValues. nullopt if
// the intersection is known to be empty. `lost`: receives keywords of `b` that could not be
// combined and were left out, so that the result allows too much.
std::optional<Part> Intersect(const Part& a, const Part& b, std::vector<std::string_view>& lost);

}  // namespace sluice
