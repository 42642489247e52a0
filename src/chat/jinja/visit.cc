#include "chat/jinja/visit.h"

namespace sluice::jinja {

namespace {

bool VisitOptional(const ExpressionPointer& expression, Use use, const NameVisitor& visit) {
  return expression == nullptr || VisitNames(*expression, use, visit);
}

bool VisitStatement(const Statement& statement, const NameVisitor& visit) {
  const auto all = [&](const std::vector<ExpressionPointer>& expressions, Use use) {
    for (const auto& expression : expressions) {
      if (!VisitNames(*expression, use, visit)) return false;
    }
    return true;
  };
  switch (statement.kind) {
    case Statement::Kind::kSet:
      return VisitNames(*statement.target, Use::kStore, visit) &&
             VisitNames(*statement.value, Use::kLoad, visit);
    case Statement::Kind::kIf:
      for (const auto& branch : statement.branches) {
        if (!VisitNames(*branch.test, Use::kLoad, visit) || !VisitNames(branch.body, visit))
          return false;
      }
      return VisitNames(statement.else_body, visit);
    case Statement::Kind::kFor:
      return VisitNames(*statement.target, Use::kStore, visit) &&
             VisitNames(*statement.value, Use::kLoad, visit) && VisitNames(statement.body, visit) &&
             VisitNames(statement.else_body, visit) &&
             VisitOptional(statement.test, Use::kLoad, visit);
    case Statement::Kind::kMacro:
    case Statement::Kind::kCallBlock:
      if (!VisitOptional(statement.value, Use::kLoad, visit)) return false;
      for (const Parameter& parameter : statement.parameters) {
        if (!visit(parameter.name, Use::kParameter, statement.line)) return false;
      }
      for (const Parameter& parameter : statement.parameters) {
        if (!VisitOptional(parameter.default_value, Use::kLoad, visit)) return false;
      }
      return VisitNames(statement.body, visit);
    case Statement::Kind::kSetBlock:
      return VisitNames(*statement.target, Use::kStore, visit) &&
             VisitOptional(statement.value, Use::kLoad, visit) && VisitNames(statement.body, visit);
    case Statement::Kind::kFilterBlock:
      return VisitNames(statement.body, visit) && VisitNames(*statement.value, Use::kLoad, visit);
    default:
      return all(statement.targets, Use::kParameter) && all(statement.expressions, Use::kLoad) &&
             VisitNames(statement.body, visit);
  }
}

}  // namespace

bool VisitNames(const Expression& expression, Use use, const NameVisitor& visit) {
  if (expression.kind == Expression::Kind::kName)
    return visit(expression.name, use, expression.line);
  if (expression.kind == Expression::Kind::kNamespaceTarget)
    return visit(expression.name, Use::kLoad, expression.line);
  for (const auto& operand : expression.operands) {
    if (!VisitOptional(operand, use, visit)) return false;
  }
  if (expression.arguments != nullptr) {
    for (const auto& argument : expression.arguments->positional) {
      if (!VisitNames(*argument, use, visit)) return false;
    }
    for (const auto& [name, argument] : expression.arguments->keyword) {
      if (!VisitNames(*argument, use, visit)) return false;
    }
    return VisitOptional(expression.arguments->star, use, visit) &&
           VisitOptional(expression.arguments->star_star, use, visit);
  }
  return true;
}

bool VisitNames(const Block& block, const NameVisitor& visit) {
  for (const auto& statement : block) {
    if (!VisitStatement(*statement, visit)) return false;
  }
  return true;
}

void VisitStatements(const Block& block, const std::function<void(const Statement&)>& visit) {
  for (const auto& statement : block) {
    visit(*statement);
    for (const auto& branch : statement->branches) VisitStatements(branch.body, visit);
    VisitStatements(statement->body, visit);
    VisitStatements(statement->else_body, visit);
  }
}

}  // namespace sluice::jinja
