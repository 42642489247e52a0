// Reads a grammar text (GBNF or Lark) as far as needed to refuse rules that no engine can follow:
// those that lead to themselves without matching a character of the answer in between.
#pragma once

#include <string_view>

#include "base/result.h"
#include "constraints/constraint.h"

namespace sluice {

// kInvalidArgument, which names the rules, if a rule derives itself and nothing else (`a ::= b`, `b
// ::= a*`). The same for rules that are repetitions of each other (`a ::= b+`, `b ::= a+`), and for
// brackets nested deeper than kMaxConstraintDepth. Left recursion that matches a character is
// allowed. Text that cannot be parsed counts as matching characters; the engine reports syntax
// errors. REQUIRES: `kind` is kEbnf or kLark.
Status CheckGrammarRules(ConstraintKind kind, std::string_view grammar);

}  // namespace sluice
