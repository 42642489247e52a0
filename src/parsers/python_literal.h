// Python's literals, as models write them in calls, turned into JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// Strings, numbers, True, False, None (also true, false, null), lists, tuples and dicts, at most 64
// inside each other. Nothing if `text` is anything else.
std::optional<std::string> PythonLiteralToJson(std::string_view text);

}  // namespace sluice
