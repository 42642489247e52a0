#include "chat/jinja/expression_parser.h"

#include <unordered_set>

#include "chat/jinja/repr.h"

namespace sluice::jinja {

bool ExpressionParser::IsReserved(std::string_view name) {
  for (const char* reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (name == reserved) return true;
  }
  return false;
}

void ExpressionParser::CheckAssignable(std::string_view name) const {
  if (IsReserved(name)) FailHere("can't assign to '" + std::string(name) + "'");
}

void ExpressionParser::CheckTarget(const Expression& target) const {
  switch (target.kind) {
    case Kind::kName:
    case Kind::kNamespaceTarget: return;
    case Kind::kTuple:
      for (const auto& item : target.operands) CheckTarget(*item);
      return;
    default: FailAt(target.line, "can't assign to this expression");
  }
}

ExpressionPointer ExpressionParser::ParseTarget(Names end_names, bool with_namespace) {
  const int line = Current().line;
  std::vector<ExpressionPointer> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) ExpectOperator(",");
    if (IsTupleEnd(end_names)) break;
    items.push_back(ParsePrimary(with_namespace));
    if (!IsOperator(",")) break;
    is_tuple = true;
  }
  ExpressionPointer target;
  if (!is_tuple) {
    if (items.empty()) FailHere("Expected an expression, got '" + Describe(Current()) + "'");
    target = std::move(items[0]);
  } else {
    target = Make(Kind::kTuple, line);
    for (auto& item : items) Add(*target, std::move(item));
  }
  CheckTarget(*target);
  return target;
}

bool ExpressionParser::IsTupleEnd(Names end_names) const {
  return Current().kind == Token::Kind::kPrintEnd || Current().kind == Token::Kind::kBlockEnd ||
         IsOperator(")") || Matches(Current(), end_names);
}

ExpressionPointer ExpressionParser::ParseTuple(Names end_names, bool with_condition,
                                               bool in_parentheses) {
  const int line = Current().line;
  std::vector<ExpressionPointer> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) ExpectOperator(",");
    if (IsTupleEnd(end_names)) break;
    items.push_back(with_condition ? ParseExpression() : ParseOr());
    if (!IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!in_parentheses) FailHere("Expected an expression, got '" + Describe(Current()) + "'");
  }
  auto tuple = Make(Kind::kTuple, line);
  for (auto& item : items) Add(*tuple, std::move(item));
  return tuple;
}

ExpressionPointer ExpressionParser::ParseExpression() {
  const Nesting nesting(*this);
  int line = Current().line;
  ExpressionPointer expression = ParseOr();
  while (SkipName("if")) {
    auto node = Make(Kind::kConditional, line);
    Add(*node, ParseOr());
    Add(*node, std::move(expression));
    Add(*node, SkipName("else") ? ParseExpression() : nullptr);
    expression = std::move(node);
    line = Current().line;
  }
  return expression;
}

ExpressionPointer ExpressionParser::ParseOr() {
  int line = Current().line;
  ExpressionPointer left = ParseAnd();
  while (SkipName("or")) {
    left = MakeOf(Kind::kOr, line, std::move(left), ParseAnd());
    line = Current().line;
  }
  return left;
}

ExpressionPointer ExpressionParser::ParseAnd() {
  int line = Current().line;
  ExpressionPointer left = ParseNot();
  while (SkipName("and")) {
    left = MakeOf(Kind::kAnd, line, std::move(left), ParseNot());
    line = Current().line;
  }
  return left;
}

ExpressionPointer ExpressionParser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  const Nesting nesting(*this);
  const int line = Advance().line;
  return MakeOf(Kind::kNot, line, ParseNot());
}

std::optional<Expression::Comparison> ExpressionParser::ParseComparison() {
  using Comparison = Expression::Comparison;
  static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
      {"<", Comparison::kLess},    {"<=", Comparison::kLessEqual},
      {">", Comparison::kGreater}, {">=", Comparison::kGreaterEqual}};
  for (const auto& [op, comparison] : kOperators) {
    if (SkipOperator(op)) return comparison;
  }
  if (SkipName("in")) return Comparison::kIn;
  if (IsName("not") && Look().kind == Token::Kind::kName && Look().text == "in") {
    Advance();
    Advance();
    return Comparison::kNotIn;
  }
  return std::nullopt;
}

ExpressionPointer ExpressionParser::ParseCompare() {
  const int line = Current().line;
  ExpressionPointer first = ParseSum();
  auto comparison = ParseComparison();
  if (!comparison) return first;
  auto node = Make(Kind::kCompare, line);
  Add(*node, std::move(first));
  for (; comparison; comparison = ParseComparison()) {
    node->comparisons.push_back(*comparison);
    Add(*node, ParseSum());
  }
  return node;
}

ExpressionPointer ExpressionParser::ParseSum() {
  int line = Current().line;
  ExpressionPointer left = ParseConcatenation();
  while (IsOperator("+") || IsOperator("-")) {
    const BinaryOperator op =
        Advance().text == "+" ? BinaryOperator::kAdd : BinaryOperator::kSubtract;
    left = MakeBinary(op, line, std::move(left), ParseConcatenation());
    line = Current().line;
  }
  return left;
}

ExpressionPointer ExpressionParser::ParseConcatenation() {
  const int line = Current().line;
  ExpressionPointer first = ParseProduct();
  if (!IsOperator("~")) return first;
  auto node = Make(Kind::kConcatenate, line);
  Add(*node, std::move(first));
  while (SkipOperator("~")) Add(*node, ParseProduct());
  return node;
}

ExpressionPointer ExpressionParser::ParseProduct() {
  int line = Current().line;
  ExpressionPointer left = ParsePower();
  while (IsOperator("*") || IsOperator("/") || IsOperator("//") || IsOperator("%")) {
    const std::string text = Advance().text;
    const BinaryOperator op = text == "*"    ? BinaryOperator::kMultiply
                              : text == "/"  ? BinaryOperator::kDivide
                              : text == "//" ? BinaryOperator::kFloorDivide
                                             : BinaryOperator::kModulo;
    left = MakeBinary(op, line, std::move(left), ParsePower());
    line = Current().line;
  }
  return left;
}

ExpressionPointer ExpressionParser::ParsePower() {
  int line = Current().line;
  ExpressionPointer left = ParseUnary(true);
  while (SkipOperator("**")) {
    left = MakeBinary(BinaryOperator::kPower, line, std::move(left), ParseUnary(true));
    line = Current().line;
  }
  return left;
}

ExpressionPointer ExpressionParser::ParseUnary(bool with_filter) {
  const int line = Current().line;
  ExpressionPointer node;
  if (IsOperator("-") || IsOperator("+")) {
    const Nesting nesting(*this);
    const Kind kind = Advance().text == "-" ? Kind::kNegate : Kind::kPosit;
    node = MakeOf(kind, line, ParseUnary(false));
  } else {
    node = ParsePrimary(false);
  }
  node = ParsePostfix(std::move(node));
  return with_filter ? ParseFilterExpression(std::move(node)) : std::move(node);
}

ExpressionPointer ExpressionParser::ParsePrimary(bool with_namespace) {
  const int line = Current().line;
  switch (Current().kind) {
    case Token::Kind::kName: {
      const std::string name = Advance().text;
      if (name == "true" || name == "True") return MakeConstant(line, Value::Bool(true));
      if (name == "false" || name == "False") return MakeConstant(line, Value::Bool(false));
      if (name == "none" || name == "None") return MakeConstant(line, Value::None());
      auto node = Make(Kind::kName, line);
      node->name = name;
      if (with_namespace && SkipOperator(".")) {
        node->kind = Kind::kNamespaceTarget;
        node->attribute = ExpectAnyName();
      }
      return node;
    }
    case Token::Kind::kString: {
      std::string text = Advance().text;
      while (Current().kind == Token::Kind::kString) text += Advance().text;
      return MakeConstant(line, Value::String(std::move(text)));
    }
    case Token::Kind::kInteger:
    case Token::Kind::kFloat: return MakeConstant(line, Advance().number);
    default: break;
  }
  if (SkipOperator("(")) {
    const Nesting nesting(*this);
    ExpressionPointer node = ParseTuple({}, true, true);
    ExpectOperator(")");
    return node;
  }
  if (SkipOperator("[")) {
    const Nesting nesting(*this);
    auto node = Make(Kind::kList, line);
    while (!IsOperator("]")) {
      if (!node->operands.empty()) ExpectOperator(",");
      if (IsOperator("]")) break;
      Add(*node, ParseExpression());
    }
    ExpectOperator("]");
    return node;
  }
  if (SkipOperator("{")) {
    const Nesting nesting(*this);
    auto node = Make(Kind::kDict, line);
    while (!IsOperator("}")) {
      if (!node->operands.empty()) ExpectOperator(",");
      if (IsOperator("}")) break;
      Add(*node, ParseExpression());
      ExpectOperator(":");
      Add(*node, ParseExpression());
    }
    ExpectOperator("}");
    return node;
  }
  FailHere("unexpected '" + Describe(Current()) + "'");
}

ExpressionPointer ExpressionParser::ParsePostfix(ExpressionPointer node) {
  while (true) {
    if (IsOperator(".") || IsOperator("[")) {
      node = ParseSubscript(std::move(node));
    } else if (IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPointer ExpressionParser::ParseFilterExpression(ExpressionPointer node) {
  while (true) {
    if (IsOperator("|")) {
      node = ParseFilters(std::move(node));
    } else if (IsName("is")) {
      node = ParseTest(std::move(node));
    } else if (IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPointer ExpressionParser::ParseSubscript(ExpressionPointer object) {
  const int line = Current().line;
  if (SkipOperator(".")) {
    if (Current().kind == Token::Kind::kName) {
      auto node = MakeOf(Kind::kAttribute, line, std::move(object));
      node->name = Advance().text;
      return node;
    }
    if (Current().kind != Token::Kind::kInteger) FailHere("expected name or number");
    ExpressionPointer key = MakeConstant(line, Advance().number);
    return MakeOf(Kind::kItem, line, std::move(object), std::move(key));
  }
  ExpectOperator("[");
  const Nesting nesting(*this);
  std::vector<ExpressionPointer> keys;
  bool has_slice = false;
  while (!IsOperator("]")) {
    if (!keys.empty()) ExpectOperator(",");
    keys.push_back(ParseSubscribed());
    // A key that is itself a slice has no object yet. A slice inside a key already has one.
    has_slice =
        has_slice || (keys.back()->kind == Kind::kSlice && keys.back()->operands[0] == nullptr);
  }
  ExpectOperator("]");
  if (keys.size() == 1) {
    if (!has_slice) return MakeOf(Kind::kItem, line, std::move(object), std::move(keys[0]));
    keys[0]->operands[0] = std::move(object);
    Adopt(*keys[0], keys[0]->operands[0]);
    return std::move(keys[0]);
  }
  if (has_slice) FailAt(line, "a slice cannot be part of a tuple");
  auto tuple = Make(Kind::kTuple, line);
  for (auto& key : keys) Add(*tuple, std::move(key));
  return MakeOf(Kind::kItem, line, std::move(object), std::move(tuple));
}

ExpressionPointer ExpressionParser::ParseSubscribed() {
  const int line = Current().line;
  ExpressionPointer start;
  if (!IsOperator(":")) {
    start = ParseExpression();
    if (!IsOperator(":")) return start;
  }
  Advance();
  auto slice = Make(Kind::kSlice, line);
  Add(*slice, nullptr);
  Add(*slice, std::move(start));
  const auto parse_bound = [&]() -> ExpressionPointer {
    if (IsOperator("]") || IsOperator(",") || IsOperator(":")) return nullptr;
    return ParseExpression();
  };
  Add(*slice, parse_bound());
  Add(*slice, SkipOperator(":") ? parse_bound() : nullptr);
  return slice;
}

std::unique_ptr<CallArguments> ExpressionParser::ParseArguments(Expression& parent) {
  const Nesting nesting(*this);
  const int line = Current().line;
  ExpectOperator("(");
  auto arguments = std::make_unique<CallArguments>();
  std::unordered_set<std::string> names;
  const auto ensure = [line](bool condition) {
    if (!condition) FailAt(line, "invalid syntax for function call expression");
  };
  for (bool is_first = true; !IsOperator(")"); is_first = false) {
    if (!is_first) {
      ExpectOperator(",");
      if (IsOperator(")")) break;
    }
    if (SkipOperator("*")) {
      ensure(arguments->star == nullptr && arguments->star_star == nullptr);
      arguments->star = ParseExpression();
      Adopt(parent, arguments->star);
    } else if (SkipOperator("**")) {
      ensure(arguments->star_star == nullptr);
      arguments->star_star = ParseExpression();
      Adopt(parent, arguments->star_star);
    } else if (Current().kind == Token::Kind::kName && Look().kind == Token::Kind::kOperator &&
               Look().text == "=") {
      ensure(arguments->star_star == nullptr);
      std::string name = Advance().text;
      Advance();
      if (!names.insert(name).second) FailAt(line, "keyword argument repeated: " + name);
      arguments->keyword.emplace_back(std::move(name), ParseExpression());
      Adopt(parent, arguments->keyword.back().second);
    } else {
      ensure(arguments->star == nullptr && arguments->star_star == nullptr &&
             arguments->keyword.empty());
      arguments->positional.push_back(ParseExpression());
      Adopt(parent, arguments->positional.back());
    }
  }
  ExpectOperator(")");
  return arguments;
}

ExpressionPointer ExpressionParser::ParseCall(ExpressionPointer callee) {
  auto node = MakeOf(Kind::kCall, Current().line, std::move(callee));
  node->arguments = ParseArguments(*node);
  return node;
}

std::string ExpressionParser::ParseDottedName() {
  std::string name = ExpectAnyName();
  while (SkipOperator(".")) name += "." + ExpectAnyName();
  return name;
}

ExpressionPointer ExpressionParser::ParseFilter(ExpressionPointer input) {
  auto node = Make(Kind::kFilter, Current().line);
  node->name = ParseDottedName();
  Add(*node, std::move(input));
  if (IsOperator("(")) node->arguments = ParseArguments(*node);
  return node;
}

ExpressionPointer ExpressionParser::ParseFilters(ExpressionPointer input) {
  while (SkipOperator("|")) input = ParseFilter(std::move(input));
  return input;
}

bool ExpressionParser::StartsTestArgument() const {
  switch (Current().kind) {
    case Token::Kind::kName: return !Matches(Current(), {"else", "or", "and"});
    case Token::Kind::kString:
    case Token::Kind::kInteger:
    case Token::Kind::kFloat: return true;
    default: return IsOperator("[") || IsOperator("{");
  }
}

ExpressionPointer ExpressionParser::ParseTest(ExpressionPointer input) {
  const int line = Advance().line;
  const bool is_negated = SkipName("not");
  auto node = Make(Kind::kTest, line);
  node->name = ParseDottedName();
  Add(*node, std::move(input));
  if (IsOperator("(")) {
    node->arguments = ParseArguments(*node);
  } else if (StartsTestArgument()) {
    if (IsName("is")) FailHere("You cannot chain multiple tests with is");
    node->arguments = std::make_unique<CallArguments>();
    node->arguments->positional.push_back(ParsePostfix(ParsePrimary(false)));
    Adopt(*node, node->arguments->positional[0]);
  }
  if (is_negated) return MakeOf(Kind::kNot, line, std::move(node));
  return node;
}

}  // namespace sluice::jinja
