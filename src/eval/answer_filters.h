// Extracts the number from an answer and compares it: GSM8K's two filters and its exact match.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// The result of a filter that finds nothing.
inline constexpr std::string_view kNoAnswer = "[invalid]";

// Returns the first number after "#### ": `#### (-?[0-9.,]+)`.
std::string StrictMatch(std::string_view answer);

// Returns the last match of a number-like pattern: `(-?[$0-9.,]{2,})|(-?[0-9]+)`.
std::string FlexibleExtract(std::string_view answer);

// Whether `found` and `reference` are equal, ignoring commas, dollar signs, text up to the last
// "#### ", a final full stop, and case.
bool ExactMatch(std::string_view found, std::string_view reference);

}  // namespace sluice
