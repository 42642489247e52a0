// Parses the expressions of a template. The parser of statements extends it (parser.cc).
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/ast.h"
#include "chat/jinja/token_reader.h"

namespace sluice::jinja {

// Maximum depth of a parsed tree.
inline constexpr int kMaxTreeDepth = 400;

class ExpressionParser : public TokenReader {
 protected:
  using Kind = Expression::Kind;
  using Names = std::initializer_list<std::string_view>;

  explicit ExpressionParser(std::string_view source) : TokenReader(source) {}

  static bool Matches(const Token& token, Names names) {
    return token.kind == Token::Kind::kName &&
           std::find(names.begin(), names.end(), token.text) != names.end();
  }

  // --- Nodes of the tree.

  ExpressionPointer Make(Kind kind, int line) {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = line;
    return node;
  }
  void Adopt(Expression& parent, const ExpressionPointer& child) {
    if (child == nullptr) return;
    parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > kMaxTreeDepth)
      FailAt(parent.line, "an expression is nested deeper than " + std::to_string(kMaxTreeDepth));
  }
  void Add(Expression& parent, ExpressionPointer child) {
    Adopt(parent, child);
    parent.operands.push_back(std::move(child));
  }
  ExpressionPointer MakeBinary(BinaryOperator op, int line, ExpressionPointer left,
                               ExpressionPointer right) {
    auto node = Make(Kind::kBinary, line);
    node->binary = op;
    Add(*node, std::move(left));
    Add(*node, std::move(right));
    return node;
  }
  ExpressionPointer MakeOf(Kind kind, int line, ExpressionPointer first,
                           ExpressionPointer second = nullptr) {
    auto node = Make(kind, line);
    Add(*node, std::move(first));
    if (second != nullptr) Add(*node, std::move(second));
    return node;
  }
  ExpressionPointer MakeConstant(int line, Value value) {
    auto node = Make(Kind::kConstant, line);
    node->constant = std::move(value);
    return node;
  }

  // --- Expressions, from the operator with the lowest precedence to the one with the highest.

  static bool IsReserved(std::string_view name);
  void CheckAssignable(std::string_view name) const;
  void CheckTarget(const Expression& target) const;
  ExpressionPointer ParseTarget(Names end_names, bool with_namespace);
  bool IsTupleEnd(Names end_names) const;

  // Parses one expression, or a tuple without brackets.
  ExpressionPointer ParseTuple(Names end_names, bool with_condition = true,
                               bool in_parentheses = false);
  ExpressionPointer ParseExpression();
  ExpressionPointer ParseOr();
  ExpressionPointer ParseAnd();
  ExpressionPointer ParseNot();
  std::optional<Expression::Comparison> ParseComparison();
  ExpressionPointer ParseCompare();
  ExpressionPointer ParseSum();
  ExpressionPointer ParseConcatenation();
  ExpressionPointer ParseProduct();
  ExpressionPointer ParsePower();
  ExpressionPointer ParseUnary(bool with_filter);
  ExpressionPointer ParsePrimary(bool with_namespace);
  ExpressionPointer ParsePostfix(ExpressionPointer node);
  ExpressionPointer ParseFilterExpression(ExpressionPointer node);
  ExpressionPointer ParseSubscript(ExpressionPointer object);

  // Parses what is between the brackets: a key or a slice. The caller sets the slice's object.
  ExpressionPointer ParseSubscribed();
  std::unique_ptr<CallArguments> ParseArguments(Expression& parent);
  ExpressionPointer ParseCall(ExpressionPointer callee);
  std::string ParseDottedName();

  // Parses one filter, after its "|".
  ExpressionPointer ParseFilter(ExpressionPointer input);
  ExpressionPointer ParseFilters(ExpressionPointer input);
  bool StartsTestArgument() const;
  ExpressionPointer ParseTest(ExpressionPointer input);
};

}  // namespace sluice::jinja
