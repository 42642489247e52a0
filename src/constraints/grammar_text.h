// Constraints as text: what is made of a request before an engine compiles it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "constraints/constraint.h"

namespace sluice {

// Brackets or objects inside each other, of any kind of constraint.
inline constexpr int kMaxConstraintDepth = 64;
inline constexpr size_t kMaxConstraintBytes = size_t{1} << 20;

// A grammar (kEbnf) of which an answer is one of `choices`. REQUIRES: not empty.
std::string ChoiceGrammar(std::span<const std::string> choices);

// Whether a grammar is Lark rather than GBNF: no line of it has "::=" outside a comment.
bool IsLark(std::string_view grammar);

// A structural tag in the layout that engines read, from that layout or the older one with
// `structures` and `triggers`. kInvalidArgument with the place.
Result<std::string> StructuralTagText(const json::Value& tag);

// kInvalidArgument for what would be ignored or could exhaust the engine: NUL, text that is too
// long, brackets or formats nested too deep, rules that lead to themselves without a character
// (grammar_rules.h), and in a regex look-around, back-references, word boundaries and inline flags.
// A structural tag is JSON; the grammars and regexes in it are checked likewise.
Status CheckConstraintText(ConstraintKind kind, std::string_view text);

}  // namespace sluice
