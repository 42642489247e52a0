// Regexes of strings in a JSON schema, as far as they can be told apart without an automaton.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// A regex for the strings of `least` to `most` characters (INT64_MAX: any number) that match all of
// `pattern`, where that is one repeated class, such as "^[a-z]+$". Nothing for all else.
std::optional<std::string> BoundedPattern(std::string_view pattern, int64_t least, int64_t most);

// What every string that matches begins with: "x-" of "^x-[a-z]+$".
std::string_view LiteralBeginning(std::string_view pattern);

// Whether the engine could write a string that is no JSON: with the character that ends strings,
// a control character, or a class over characters that are not ASCII.
bool MayBreakStrings(std::string_view pattern);

}  // namespace sluice
