// How the number is taken out of an answer, and when it counts as right: GSM8K's two filters and
// its exact match.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// What a filter gives where an answer has nothing for it.
inline constexpr std::string_view kNoAnswer = "[invalid]";

// The first number after "#### ": `#### (-?[0-9.,]+)`.
std::string StrictMatch(std::string_view answer);

// The last thing that looks like a number: `(-?[$0-9.,]{2,})|(-?[0-9]+)`.
std::string FlexibleExtract(std::string_view answer);

// Equal once commas, dollar signs, all up to the last "#### ", a full stop at the end and the case
// of letters are left out.
bool ExactMatch(std::string_view found, std::string_view reference);

}  // namespace sluice
