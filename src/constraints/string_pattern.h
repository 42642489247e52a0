// Analyzes the regexes in a JSON schema, as far as possible without an automaton.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// Returns a regex for the strings of `least` to `most` characters (INT64_MAX: any number) that
// `pattern` matches as a whole, if `pattern` is one repeated class, such as "^[a-z]+$"; else
// nullopt.
std::optional<std::string> BoundedPattern(std::string_view pattern, int64_t least, int64_t most);

// Returns the literal text with which every matching string begins: "x-" for "^x-[a-z]+$".
std::string_view LiteralBeginning(std::string_view pattern);

// Returns an equivalent regex that xgrammar 0.2.8 compiles correctly. xgrammar's automata accept
// wrong strings in two cases: for an optional group that ends or begins with a repetition
// ("(x[0-9]+)?" accepts "12"), and for a bounded repetition at the end of an alternative. In
// both cases the end state has outgoing edges. Empty groups "()" around the group or the repetition
// give it a separate start state and end state.
std::string WithOwnEnds(std::string_view pattern);

// Whether the engine could write an invalid JSON string for this pattern: one with an unescaped
// quote or backslash, a control character, or a class over characters that are not ASCII.
bool MayBreakStrings(std::string_view pattern);

}  // namespace sluice
