// The values that a JSON schema allows, as parts for one kind of value each. In this form schemas
// are combined before they are written as a schema again.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sluice {

// A schema within the client's document, which must outlive it.
struct SchemaPiece {
  const json::Value* schema = nullptr;
  std::string place;  // JSON pointer
};

// Schemas that all hold. Empty: any value.
using SchemaPieces = std::vector<SchemaPiece>;

SchemaPieces NothingAt(std::string place);
// The pieces of both, without duplicates.
SchemaPieces Together(SchemaPieces a, const SchemaPieces& b);

enum class PartKind { kNull, kBoolean, kNumber, kString, kArray, kObject, kValues };

struct Part {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  struct Property {
    std::string name;  // the regex for `patterns`
    SchemaPieces schemas;
  };

  PartKind kind = PartKind::kNull;
  std::string place;

  std::vector<json::Value> values;  // kValues: the allowed values

  // kNumber
  bool is_integer = false;
  double least = -kInfinity, most = kInfinity;
  bool above_least = false, below_most = false;  // the bound itself is excluded
  double multiple_of = 0;                        // 0: no restriction

  // The size of a string in characters, of an array in items, of an object in properties.
  int64_t least_size = 0, most_size = kNoLimit;

  // kString; "" for none
  std::string pattern, format;

  // kArray
  std::vector<SchemaPieces> prefix;
  bool unique = false;

  // kObject
  std::vector<Property> properties;
  std::vector<std::string> required;
  std::vector<Property> patterns;
  SchemaPieces names;

  // Items after the prefix; properties that are not listed and match no pattern.
  SchemaPieces rest;
  bool rest_is_stated = false;        // set by the client
  bool is_closed_by_default = false;  // allows nothing there unless stated

  const Property* FindProperty(std::string_view name) const;
  bool Requires(std::string_view name) const;
  // Whether it allows all values of its kind.
  bool IsFree() const;
};

using Parts = std::vector<Part>;

// One part of every kind, without constraints.
Parts Anything(const std::string& place);
bool IsAnything(const Parts& parts);
// The unconstrained part for the name of a type; "integer" is a kNumber.
Part PartOfType(std::string_view type, const std::string& place);

Part PartOfValues(std::vector<json::Value> values, const std::string& place);
void AddParts(Parts& parts, const Parts& more);

// Equality of JSON Schema: 1 equals 1.0, but not true.
bool SameJson(const json::Value& a, const json::Value& b);
bool IsOfKind(const json::Value& value, PartKind kind);

// The values that both parts allow; both have the same kind, not kValues. nullopt if the
// intersection is known to be empty. `lost`: keywords of `b` that could not be combined and were
// left out, so that the result allows too much.
std::optional<Part> Intersect(const Part& a, const Part& b, std::vector<std::string_view>& lost);

}  // namespace sluice
