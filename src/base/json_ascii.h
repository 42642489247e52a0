// Writes JSON strings in ASCII only.
#pragma once

#include <string>
#include <string_view>

namespace sluice::json {

// Appends `text` as a JSON string like AppendString, but writes every character outside printable
// ASCII as \uXXXX, as Python's json.dumps does. So programs that split text into lines do not
// mistake U+2028 and the like for line ends.
void AppendAsciiString(std::string& out, std::string_view text);

}  // namespace sluice::json
