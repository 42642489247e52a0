// Converts and checks a request's constraint as text, before it is compiled.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "constraints/constraint.h"

namespace sluice {

// Maximum nesting of brackets or objects in any kind of constraint.
inline constexpr int kMaxConstraintDepth = 64;
inline constexpr size_t kMaxConstraintBytes = size_t{1} << 20;

// Returns a grammar (kEbnf) whose answers are exactly `choices`. REQUIRES: not empty.
std::string ChoiceGrammar(std::span<const std::string> choices);

// Whether a grammar is Lark rather than GBNF: none of its lines has "::=" outside a comment.
bool IsLark(std::string_view grammar);

// Converts a structural tag to the format that engines read, from that format or the older one with
// `structures` and `triggers`. kInvalidArgument names the location.
Result<std::string> StructuralTagText(const json::Value& tag);

// kInvalidArgument for parts that the engine would ignore or that could exhaust it: NUL; text that
// is too long; brackets or formats nested too deeply; rules that lead to themselves without a
// character (grammar_rules.h); look-around, back-references, word boundaries and inline flags of a
// regex. A structural tag is JSON; the grammars and regexes in it are checked in the same way.
Status CheckConstraintText(ConstraintKind kind, std::string_view text);

}  // namespace sluice
