// Finds the model that a request names without parsing the whole body.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// Returns the string value of the key "model" in the JSON object `body`; of duplicate keys the
// last, as in the parser. nullopt if the body is not an object, the key is absent, its value is not
// a string, or the text up to the end of the object is not JSON. The contents of other values are
// skipped, not checked. Takes one pass, and memory only for the name.
std::optional<std::string> FindModelField(std::string_view body);

}  // namespace sluice
