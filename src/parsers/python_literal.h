// Converts Python literals, which models write as call arguments, to JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// Accepts strings, numbers, True, False, None (also true, false, null), lists, tuples and dicts,
// nested at most 64 deep. Returns nullopt for any other text.
std::optional<std::string> PythonLiteralToJson(std::string_view text);

}  // namespace sluice
