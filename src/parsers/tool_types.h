// The types of tools' parameters according to their schemas, for formats that write values without
// types.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"

namespace sluice {

// The types that a schema allows; all false if the schema names none.
struct ParameterTypes {
  bool string = false;
  bool integer = false;
  bool number = false;
  bool boolean = false;
  bool null = false;
  bool object = false;
  bool array = false;
  // Whether the value is one of an enumeration in a strict function. Grammars allow blanks around
  // it, which are not part of the value.
  bool is_choice = false;

  bool only_string() const {
    return string && !integer && !number && !boolean && !null && !object && !array;
  }
  bool unknown() const {
    return !string && !integer && !number && !boolean && !null && !object && !array;
  }
};

// The parameter types of a request's tools. Thread safety: immutable once built.
class ToolTypes {
 public:
  ToolTypes() = default;
  // `tools` as in a chat request, or null. Skips entries that have another form. `keeps_schemas`:
  // for formats with nested values.
  explicit ToolTypes(const json::Value& tools, bool keeps_schemas = false);

  bool empty() const { return tools_.empty(); }
  bool HasTool(std::string_view tool) const { return tools_.find(tool) != tools_.end(); }
  ParameterTypes Find(std::string_view tool, std::string_view parameter) const;
  // Returns the schema of the tool's parameters; null if it has none, or if schemas are not kept.
  const json::Value* SchemaOf(std::string_view tool) const;

 private:
  using Parameters = std::map<std::string, ParameterTypes, std::less<>>;
  std::map<std::string, Parameters, std::less<>> tools_;
  std::map<std::string, json::Value, std::less<>> schemas_;
};

ParameterTypes TypesOf(const json::Value& schema);

// Converts `text` to JSON: as the first of `types` that fits, else as a string. `scalars_only`:
// null, objects and arrays also remain strings.
std::string TypedValue(std::string_view text, const ParameterTypes& types, bool scalars_only);

// Appends `text`, escaped for a JSON string, without quotes. `text` may end inside a character.
void AppendEscaped(std::string& out, std::string_view text);

}  // namespace sluice
