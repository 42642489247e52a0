// Writes JSON strings in ASCII only.
#pragma once

#include <string>
#include <string_view>

namespace sluice::json {

// Appends `text` as a JSON string like AppendString, but writes every character outside printable
// ASCII as \uXXXX, as Python's json.dumps does. So no line reader mistakes a character such as
// U+2028 for a line end.
void AppendAsciiString(std::string& out, std::string_view text);

}  // namespace sluice::json
