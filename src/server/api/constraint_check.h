// Mistakes in constraints on an answer that can be told without computing with them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// What is wrong with a regular expression: brackets that are not closed or not opened, nothing
// behind a backslash, nothing to repeat. None where none of these is.
std::optional<std::string> RegexMistake(std::string_view pattern);

// What is wrong with a grammar in GBNF: no rule at all, quotes or brackets that are not closed or
// not opened.
std::optional<std::string> GrammarMistake(std::string_view grammar);

}  // namespace sluice
