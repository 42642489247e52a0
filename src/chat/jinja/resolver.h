// Assigns a slot to every variable of a template.
//
// Follows the rules by which jinja2 turns a template into Python functions:
// - A construct with a scope (for, macro, call, with, filter, block set) has its own copy of each
//   variable that it sets. The copy starts with the current value in the outer scope.
// - A variable that no scope sets is looked up among the template's variables when the scope is
//   entered.
// - A macro sees the surrounding variables as they are when it is called.
#pragma once

#include "chat/jinja/ast.h"

namespace sluice::jinja {

// Sets the references and scopes in the syntax tree of `program`, and program.variables. Fails
// (kSyntax) for `break` outside a loop, an assignment to `loop`, and unknown filters or tests
// outside a condition.
void Resolve(Program& program);

}  // namespace sluice::jinja
