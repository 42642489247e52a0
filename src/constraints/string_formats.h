// The values of `format` in a JSON schema that are enforced.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

std::span<const std::string_view> KnownFormats();
bool IsKnownFormat(std::string_view format);

// A regex that the whole of a string meets if and only if it is of the format. nullopt for formats
// of which the engine's own regex is right.
std::optional<std::string> PatternOfFormat(std::string_view format);

}  // namespace sluice
