// Reads the rules of a grammar text (GBNF or Lark) as far as needed to refuse those that no engine
// can follow: rules that lead to themselves without a character of the answer in between.
#pragma once

#include <string_view>

#include "base/result.h"
#include "constraints/constraint.h"

namespace sluice {

// kInvalidArgument, naming the rules, if a rule derives itself and nothing else (`a ::= b`, `b ::=
// a*`), or if a rule is a repetition of a rule that is a repetition of it; also for brackets nested
// deeper than kMaxConstraintDepth. Left recursion that takes a character is allowed. Text that
// cannot be parsed counts as characters: the engine reports errors of syntax.
// REQUIRES: `kind` is kEbnf or kLark.
Status CheckGrammarRules(ConstraintKind kind, std::string_view grammar);

}  // namespace sluice
