// Strings of bounded length in the grammar of a JSON schema.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// xgrammar writes a bounded string of a schema as a rule `x_characters` that repeats {least, most}
// times, and compiles a mask for each of up to hundreds of positions, which takes seconds over a
// large vocabulary. This gives the same grammar (EBNF) with long ones as rules whose characters
// the matcher counts (`max_chars`): their bound is exact, because such a string may end behind any
// character. None, where there is no long one.
std::optional<std::string> CountBoundedStrings(std::string_view ebnf);

}  // namespace sluice
