// What a JSON schema allows, as parts of one kind of value each: the form in which schemas can be
// combined, before they are written as a schema again.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sluice {

// A schema in the client's document, which outlives the pieces.
struct SchemaPiece {
  const json::Value* schema = nullptr;
  std::string place;  // JSON pointer
};

// All of them hold. None: anything.
using SchemaPieces = std::vector<SchemaPiece>;

SchemaPieces NothingAt(std::string place);
// The pieces of both, each once.
SchemaPieces Together(SchemaPieces a, const SchemaPieces& b);

enum class PartKind { kNull, kBoolean, kNumber, kString, kArray, kObject, kValues };

struct Part {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  struct Property {
    std::string name;  // of patterns: the regex
    SchemaPieces schemas;
  };

  PartKind kind = PartKind::kNull;
  std::string place;

  std::vector<json::Value> values;  // kValues: one of them

  // kNumber
  bool is_integer = false;
  double least = -kInfinity, most = kInfinity;
  bool above_least = false, below_most = false;  // the bound itself is excluded
  double multiple_of = 0;                        // 0: of any

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

  // Items after the prefix; properties that are neither named nor match a pattern.
  SchemaPieces rest;
  bool rest_is_stated = false;        // by the client
  bool is_closed_by_default = false;  // nothing there, where it is not stated

  const Property* FindProperty(std::string_view name) const;
  bool Requires(std::string_view name) const;
  // Allows all values of its kind.
  bool IsFree() const;
};

using Parts = std::vector<Part>;

// One of every kind, without constraints.
Parts Anything(const std::string& place);
bool IsAnything(const Parts& parts);
// The unconstrained part of a type's name; "integer" is a number.
Part PartOfType(std::string_view type, const std::string& place);

Part PartOfValues(std::vector<json::Value> values, const std::string& place);
void AddParts(Parts& parts, const Parts& more);

// As JSON Schema compares: 1 is 1.0 and not true.
bool SameJson(const json::Value& a, const json::Value& b);
bool IsOfKind(const json::Value& value, PartKind kind);

// What both allow, for two parts of one kind but kValues; none if that is seen to be nothing.
// `lost` names keywords of `b` that could not be combined and were left out: an upper bound then.
std::optional<Part> Intersect(const Part& a, const Part& b, std::vector<std::string_view>& lost);

}  // namespace sluice
