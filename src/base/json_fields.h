// Reads typed fields of a JSON object. Every error names the field, what was expected and what was
// found.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// Reads the fields of one object. A field that is absent or null counts as not given; optional
// results are then nullopt. Ownership: views the object.
class JsonFields {
 public:
  // `where` is put before field names in messages, e.g. "rope_scaling." or "".
  // REQUIRES: `object` is a JSON object.
  JsonFields(const json::Value& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  // Returns null if not given.
  const json::Value* Given(std::string_view name) const;
  // Whether the object has the field, even if it is null.
  bool Has(std::string_view name) const { return object_.Find(name) != nullptr; }

  Result<std::optional<int64_t>> Integer(std::string_view name, int64_t min, int64_t max) const;
  Result<int64_t> RequiredInteger(std::string_view name, int64_t min, int64_t max) const;
  // Accepts finite numbers with min <= value <= max.
  Result<std::optional<double>> Number(std::string_view name, double min, double max) const;
  Result<std::optional<bool>> Bool(std::string_view name) const;
  Result<std::optional<std::string>> String(std::string_view name) const;
  Result<std::optional<std::vector<std::string>>> Strings(std::string_view name) const;
  // Reads a list of integers, each from min to max.
  Result<std::optional<std::vector<int64_t>>> Integers(std::string_view name, int64_t min,
                                                       int64_t max) const;
  // Reads an integer or a list of integers. Returns [] if not given.
  Result<std::vector<int32_t>> TokenIds(std::string_view name) const;
  // Returns a field that is an object or a list, or null if not given.
  Result<const json::Value*> Object(std::string_view name) const;
  Result<const json::Value::Array*> Array(std::string_view name) const;
  // Returns the members of an object that are strings; skips other members.
  Result<std::optional<std::map<std::string, std::string>>> Texts(std::string_view name) const;

  tl::unexpected<Error> Bad(std::string_view name, std::string_view expected,
                            const json::Value& found) const;
  tl::unexpected<Error> Missing(std::string_view name) const;

 private:
  const json::Value& object_;
  std::string where_;
};

// Formats a value for an error message: its JSON text, truncated.
std::string ShortText(const json::Value& value);
// Formats a name from a file for an error message: on one line, truncated.
std::string ShortName(std::string_view name);

}  // namespace sluice
