// The rules of a grammar as text (GBNF or Lark), read far enough to refuse those that no engine can
// follow: rules that lead to themselves without a character of the answer in between.
#pragma once

#include <string_view>

#include "base/result.h"
#include "constraints/constraint.h"

namespace sluice {

// kInvalidArgument, naming the rules, if a rule derives itself alone (`a ::= b`, `b ::= a*`), or if
// the whole of a rule repeats a rule whose whole repeats it; likewise for brackets more than
// kMaxConstraintDepth deep. Left recursion that takes a character is fine. What it cannot read it
// takes for characters: errors of syntax are the engine's to report.
// REQUIRES: `kind` is kEbnf or kLark.
Status CheckGrammarRules(ConstraintKind kind, std::string_view grammar);

}  // namespace sluice
