// Finds known words that are spelt similarly to an unknown word.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// The minimum number of edits that turn `a` into `b`. An edit inserts, deletes or replaces a
// letter, or swaps two adjacent ones.
int EditDistance(std::string_view a, std::string_view b);

// Returns up to two of `known` that are spelt similarly to `word`, most similar first.
std::vector<std::string> Nearest(std::string_view word, std::span<const std::string> known);

// Returns ", did you mean --x or --y?", or "" if nothing is similar.
std::string DidYouMean(std::string_view word, std::span<const std::string> known);

}  // namespace sluice
