// Finds the model that a request names without parsing the whole body.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// Returns the string value of the key "model" in the JSON object `body`; with duplicate keys, the
// last value, as in the parser. nullopt if the body is not an object or is not JSON up to the
// object's end, or if the key is missing or its value is not a string. The contents of other values
// are skipped, not checked. Takes one pass, and memory only for the name.
std::optional<std::string> FindModelField(std::string_view body);

}  // namespace sluice
