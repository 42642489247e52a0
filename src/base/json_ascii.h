// JSON strings in ASCII alone.
#pragma once

#include <string>
#include <string_view>

namespace sluice::json {

// Appends `text` as a JSON string like AppendString, with \uXXXX for every character outside of
// printable ASCII, as Python's json.dumps writes it: no reader of lines takes a character such as
// U+2028 for the end of one.
void AppendAsciiString(std::string& out, std::string_view text);

}  // namespace sluice::json
