// Visits the names and statements in a part of a template.
#pragma once

#include <functional>
#include <string>

#include "chat/jinja/ast.h"

namespace sluice::jinja {

enum class Use { kLoad, kStore, kParameter };
// Called for every name in the subtree, in source order; returning false stops.
using NameVisitor = std::function<bool(const std::string& name, Use use, int line)>;

bool VisitNames(const Expression& expression, Use use, const NameVisitor& visit);
bool VisitNames(const Block& block, const NameVisitor& visit);

// Visits every statement in the block, outer statements first.
void VisitStatements(const Block& block, const std::function<void(const Statement&)>& visit);

}  // namespace sluice::jinja
