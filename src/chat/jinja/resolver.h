// Gives every variable of a template its place.
//
// The rules are those by which jinja2 turns a template into Python functions: a construct that has
// a scope (for, macro, call, with, filter, block set) keeps the variables that it sets to itself,
// and starts with the value that the outer scope has at that moment; a variable that no scope sets
// is looked up among the template's variables when the scope is entered; a macro sees the variables
// around it as they are when it is called.
#pragma once

#include "chat/jinja/ast.h"

namespace sluice::jinja {

// Fills in what the syntax tree of `program` leaves open, and program.variables.
// Fails (kSyntax) for `break` outside a loop, an assignment to `loop`, and filters or tests that do
// not exist and are not inside a condition.
void Resolve(Program& program);

}  // namespace sluice::jinja
