// JSON strings that contain only ASCII.
#pragma once

#include <string>
#include <string_view>

namespace sluice::json {

// Appends `text` as a JSON string like AppendString, with \uXXXX for every character outside
// printable ASCII, as Python's json.dumps does. So no reader of lines mistakes a character such as
// U+2028 for the end of a line.
void AppendAsciiString(std::string& out, std::string_view text);

}  // namespace sluice::json
