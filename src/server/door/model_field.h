// Finds the model that a request names without parsing the whole body.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// Returns the string value of the key "model" in the JSON object `body`; with duplicate keys, the
// last value, as in the parser. nullopt if the body is not an object, is not JSON up to the
// object's end, or has no such key with a string as its value. Skips the contents of other values
// without checking them. Takes one pass, and memory only for the name.
std::optional<std::string> FindModelField(std::string_view body);

}  // namespace sluice
