// Finds known words that are spelt similarly to an unknown word.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Minimum number of letters to insert, delete, replace or swap with their neighbour that turns `a`
// into `b`.
int EditDistance(std::string_view a, std::string_view b);

// Up to two of `known` that are spelt similarly to `word`, most similar first; may be empty.
std::vector<std::string> Nearest(std::string_view word, std::span<const std::string> known);

// ", did you mean --x or --y?" or "".
std::string DidYouMean(std::string_view word, std::span<const std::string> known);

}  // namespace sluice
