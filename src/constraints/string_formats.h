// The values of `format` in a JSON schema that are enforced.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

std::span<const std::string_view> KnownFormats();
bool IsKnownFormat(std::string_view format);

// Returns a regex that matches a whole string if and only if it has the format; nullopt for formats
// that the engine enforces correctly itself.
std::optional<std::string> PatternOfFormat(std::string_view format);

}  // namespace sluice
