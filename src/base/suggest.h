// Known spellings near an unknown one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Least number of letters to insert, delete, replace or swap with their neighbour to turn `a` into
// `b`.
int EditDistance(std::string_view a, std::string_view b);

// Up to two of `known` that are near `word`, nearest first; none if none is.
std::vector<std::string> Nearest(std::string_view word, std::span<const std::string> known);

// ", did you mean --x or --y?" or "".
std::string DidYouMean(std::string_view word, std::span<const std::string> known);

}  // namespace sluice
