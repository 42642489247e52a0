// The model that a request names, found without parsing its whole body.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// The text of the key "model" of the JSON object `body`; of equal keys the last one, as the parser
// has it. None where the body is no object, has no such key, its value is no text, or the text
// before the end of the object is no JSON. What lies inside other values is passed over, not
// checked. Time: one pass. Memory: that of the name.
std::optional<std::string> FindModelField(std::string_view body);

}  // namespace sluice
