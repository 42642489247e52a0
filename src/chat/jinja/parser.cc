#include "chat/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "chat/jinja/lexer.h"
#include "chat/jinja/repr.h"

namespace sluice::jinja {

namespace {

// Of brackets, signs and blocks inside each other while parsing, and of the finished tree.
constexpr int kMaxNesting = 120;
constexpr int kMaxTreeDepth = 400;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(Tokenize(source)) {}

  Block ParseTemplate() {
    Block body = ParseBody({});
    return body;
  }

  using Kind = Expression::Kind;

 private:
  using Names = std::initializer_list<std::string_view>;

  // --- Tokens.

  const Token& Current() const { return tokens_[position_]; }
  const Token& Look() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  Token& Advance() {
    Token& token = tokens_[position_];
    if (position_ + 1 < tokens_.size()) ++position_;
    return token;
  }
  [[noreturn]] void FailHere(std::string message) const {
    FailAt(Current().line, std::move(message));
  }
  [[noreturn]] static void FailAt(int line, std::string message) {
    throw Failure{FailureKind::kSyntax, std::move(message), line};
  }

  bool IsOperator(std::string_view op) const {
    return Current().kind == Token::Kind::kOperator && Current().text == op;
  }
  bool IsName(std::string_view name) const {
    return Current().kind == Token::Kind::kName && Current().text == name;
  }
  bool SkipOperator(std::string_view op) {
    if (!IsOperator(op)) return false;
    Advance();
    return true;
  }
  bool SkipName(std::string_view name) {
    if (!IsName(name)) return false;
    Advance();
    return true;
  }
  void ExpectOperator(std::string_view op) {
    if (!SkipOperator(op))
      FailHere("expected token '" + std::string(op) + "', got '" + Describe(Current()) + "'");
  }
  void ExpectKind(Token::Kind kind, const char* what) {
    if (Current().kind != kind)
      FailHere(std::string("expected token '") + what + "', got '" + Describe(Current()) + "'");
    Advance();
  }
  void ExpectBlockEnd() { ExpectKind(Token::Kind::kBlockEnd, "end of statement block"); }
  std::string ExpectAnyName() {
    if (Current().kind != Token::Kind::kName)
      FailHere("expected token 'name', got '" + Describe(Current()) + "'");
    return Advance().text;
  }

  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting) {
        --parser_.nesting_;
        parser.FailHere("expressions or blocks are nested deeper than " +
                        std::to_string(kMaxNesting));
      }
    }
    ~Nesting() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  // --- Nodes.

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

  // --- Statements.

  static bool Matches(const Token& token, Names names) {
    return token.kind == Token::Kind::kName &&
           std::find(names.begin(), names.end(), token.text) != names.end();
  }

  // Statements up to a tag of one of the names, which becomes the current token.
  Block ParseBody(Names end_names) {
    const Nesting nesting(*this);
    Block body;
    while (true) {
      switch (Current().kind) {
        case Token::Kind::kEnd:
          if (end_names.size() > 0) FailEnd(end_names);
          return body;
        case Token::Kind::kText: {
          auto statement = MakeStatement(Statement::Kind::kText);
          statement->text = Advance().text;
          body.push_back(std::move(statement));
          break;
        }
        case Token::Kind::kPrintBegin: {
          auto statement = MakeStatement(Statement::Kind::kPrint);
          Advance();
          statement->expressions.push_back(ParseTuple({}));
          ExpectKind(Token::Kind::kPrintEnd, "end of print statement");
          body.push_back(std::move(statement));
          break;
        }
        case Token::Kind::kBlockBegin:
          Advance();
          if (Matches(Current(), end_names)) return body;
          body.push_back(ParseStatement(end_names));
          ExpectBlockEnd();
          break;
        default: FailHere("unexpected '" + Describe(Current()) + "'");
      }
    }
  }

  [[noreturn]] void FailEnd(Names names) const {
    std::string expected;
    for (const std::string_view name : names)
      expected += (expected.empty() ? "'" : " or '") + std::string(name) + "'";
    FailHere("Unexpected end of template. Jinja was looking for the following tags: " + expected);
  }

  // The body of the current tag, whose own end stands next, up to one of the names.
  Block ParseStatements(Names end_names) {
    SkipOperator(":");
    ExpectBlockEnd();
    return ParseBody(end_names);
  }
  Block ParseStatementsAndDrop(std::string_view end_name) {
    Block body = ParseStatements({end_name});
    Advance();
    return body;
  }

  std::unique_ptr<Statement> MakeStatement(Statement::Kind kind) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = Current().line;
    return statement;
  }

  std::unique_ptr<Statement> ParseStatement(Names end_names) {
    if (Current().kind != Token::Kind::kName) FailHere("tag name expected");
    const std::string tag = Current().text;
    if (tag == "for") return ParseFor();
    if (tag == "if") return ParseIf();
    if (tag == "set") return ParseSet();
    if (tag == "macro") return ParseMacro();
    if (tag == "call") return ParseCallBlock();
    if (tag == "filter") return ParseFilterBlock();
    if (tag == "with") return ParseWith();
    if (tag == "print") return ParsePrint();
    if (tag == "generation") return ParseGeneration();
    if (tag == "autoescape") return ParseAutoescape();
    if (tag == "break" || tag == "continue") {
      auto statement =
          MakeStatement(tag == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue);
      Advance();
      return statement;
    }
    for (const char* refused : {"include", "import", "from", "extends", "block"}) {
      if (tag == refused)
        FailHere("the tag '" + tag +
                 "' is not supported: a chat template is one file without inheritance");
    }
    std::string message = "Encountered unknown tag '" + tag + "'.";
    if (end_names.size() > 0) {
      message += " Jinja was looking for the following tags:";
      for (const std::string_view name : end_names) message += " '" + std::string(name) + "'";
    }
    FailHere(message);
  }

  std::unique_ptr<Statement> ParseFor() {
    auto statement = MakeStatement(Statement::Kind::kFor);
    Advance();
    statement->target = ParseTarget({"in"}, false);
    if (!SkipName("in")) FailHere("expected token 'in', got '" + Describe(Current()) + "'");
    statement->value = ParseTuple({"recursive"}, false);
    if (SkipName("if")) statement->test = ParseExpression();
    statement->is_recursive = SkipName("recursive");
    statement->body = ParseStatements({"endfor", "else"});
    if (Advance().text == "else") statement->else_body = ParseStatementsAndDrop("endfor");
    return statement;
  }

  std::unique_ptr<Statement> ParseIf() {
    auto statement = MakeStatement(Statement::Kind::kIf);
    Advance();
    while (true) {
      ExpressionPointer test = ParseTuple({}, false);
      Block body = ParseStatements({"elif", "else", "endif"});
      statement->branches.push_back({std::move(test), std::move(body)});
      const std::string tag = Advance().text;
      if (tag == "elif") continue;
      if (tag == "else") statement->else_body = ParseStatementsAndDrop("endif");
      return statement;
    }
  }

  std::unique_ptr<Statement> ParseSet() {
    auto statement = MakeStatement(Statement::Kind::kSet);
    Advance();
    statement->target = ParseTarget({}, true);
    if (SkipOperator("=")) {
      statement->value = ParseTuple({});
      return statement;
    }
    statement->kind = Statement::Kind::kSetBlock;
    statement->value = ParseFilters(nullptr);
    statement->body = ParseStatementsAndDrop("endset");
    return statement;
  }

  void ParseSignature(Statement& statement) {
    ExpectOperator("(");
    while (!IsOperator(")")) {
      if (!statement.parameters.empty()) ExpectOperator(",");
      Parameter parameter;
      parameter.name = ExpectAnyName();
      CheckAssignable(parameter.name);
      if (SkipOperator("=")) {
        parameter.default_value = ParseExpression();
      } else if (!statement.parameters.empty() &&
                 statement.parameters.back().default_value != nullptr) {
        FailHere("non-default argument follows default argument");
      }
      for (const Parameter& other : statement.parameters) {
        if (other.name == parameter.name) FailHere("duplicate argument '" + parameter.name + "'");
      }
      statement.parameters.push_back(std::move(parameter));
    }
    ExpectOperator(")");
  }

  std::unique_ptr<Statement> ParseMacro() {
    auto statement = MakeStatement(Statement::Kind::kMacro);
    Advance();
    statement->text = ExpectAnyName();
    CheckAssignable(statement->text);
    ParseSignature(*statement);
    statement->body = ParseStatementsAndDrop("endmacro");
    return statement;
  }

  std::unique_ptr<Statement> ParseCallBlock() {
    auto statement = MakeStatement(Statement::Kind::kCallBlock);
    Advance();
    if (IsOperator("(")) ParseSignature(*statement);
    statement->value = ParseExpression();
    if (statement->value->kind != Kind::kCall) FailAt(statement->line, "expected call");
    statement->body = ParseStatementsAndDrop("endcall");
    return statement;
  }

  std::unique_ptr<Statement> ParseGeneration() {
    auto statement = MakeStatement(Statement::Kind::kGeneration);
    Advance();
    statement->body = ParseStatementsAndDrop("endgeneration");
    return statement;
  }

  std::unique_ptr<Statement> ParseFilterBlock() {
    auto statement = MakeStatement(Statement::Kind::kFilterBlock);
    Advance();
    statement->value = ParseFilter(nullptr);
    statement->value = ParseFilters(std::move(statement->value));
    statement->body = ParseStatementsAndDrop("endfilter");
    return statement;
  }

  std::unique_ptr<Statement> ParseWith() {
    auto statement = MakeStatement(Statement::Kind::kWith);
    Advance();
    while (Current().kind != Token::Kind::kBlockEnd) {
      if (!statement->targets.empty()) ExpectOperator(",");
      statement->targets.push_back(ParseTarget({}, false));
      ExpectOperator("=");
      statement->expressions.push_back(ParseExpression());
    }
    statement->body = ParseStatementsAndDrop("endwith");
    return statement;
  }

  std::unique_ptr<Statement> ParsePrint() {
    auto statement = MakeStatement(Statement::Kind::kPrint);
    Advance();
    while (Current().kind != Token::Kind::kBlockEnd) {
      if (!statement->expressions.empty()) ExpectOperator(",");
      statement->expressions.push_back(ParseExpression());
    }
    return statement;
  }

  std::unique_ptr<Statement> ParseAutoescape() {
    auto statement = MakeStatement(Statement::Kind::kScope);
    Advance();
    const ExpressionPointer mode = ParseExpression();
    if (mode->kind != Kind::kConstant || Truth(mode->constant)) {
      FailAt(statement->line, "the tag 'autoescape' is not supported: chat templates are not HTML");
    }
    statement->body = ParseStatementsAndDrop("endautoescape");
    return statement;
  }

  // --- Targets of assignments.

  static bool IsReserved(std::string_view name) {
    for (const char* reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (name == reserved) return true;
    }
    return false;
  }
  void CheckAssignable(std::string_view name) const {
    if (IsReserved(name)) FailHere("can't assign to '" + std::string(name) + "'");
  }

  void CheckTarget(const Expression& target) const {
    switch (target.kind) {
      case Kind::kName:
      case Kind::kNamespaceTarget: return;
      case Kind::kTuple:
        for (const auto& item : target.operands) CheckTarget(*item);
        return;
      default: FailAt(target.line, "can't assign to this expression");
    }
  }

  ExpressionPointer ParseTarget(Names end_names, bool with_namespace) {
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

  // --- Expressions, from the weakest operator to the strongest.

  bool IsTupleEnd(Names end_names) const {
    return Current().kind == Token::Kind::kPrintEnd || Current().kind == Token::Kind::kBlockEnd ||
           IsOperator(")") || Matches(Current(), end_names);
  }

  // One expression, or a tuple without brackets.
  ExpressionPointer ParseTuple(Names end_names, bool with_condition = true,
                               bool in_parentheses = false) {
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

  ExpressionPointer ParseExpression() {
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

  ExpressionPointer ParseOr() {
    int line = Current().line;
    ExpressionPointer left = ParseAnd();
    while (SkipName("or")) {
      left = MakeOf(Kind::kOr, line, std::move(left), ParseAnd());
      line = Current().line;
    }
    return left;
  }

  ExpressionPointer ParseAnd() {
    int line = Current().line;
    ExpressionPointer left = ParseNot();
    while (SkipName("and")) {
      left = MakeOf(Kind::kAnd, line, std::move(left), ParseNot());
      line = Current().line;
    }
    return left;
  }

  ExpressionPointer ParseNot() {
    if (!IsName("not")) return ParseCompare();
    const Nesting nesting(*this);
    const int line = Advance().line;
    return MakeOf(Kind::kNot, line, ParseNot());
  }

  std::optional<Expression::Comparison> ParseComparison() {
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

  ExpressionPointer ParseCompare() {
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

  ExpressionPointer ParseSum() {
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

  ExpressionPointer ParseConcatenation() {
    const int line = Current().line;
    ExpressionPointer first = ParseProduct();
    if (!IsOperator("~")) return first;
    auto node = Make(Kind::kConcatenate, line);
    Add(*node, std::move(first));
    while (SkipOperator("~")) Add(*node, ParseProduct());
    return node;
  }

  ExpressionPointer ParseProduct() {
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

  ExpressionPointer ParsePower() {
    int line = Current().line;
    ExpressionPointer left = ParseUnary(true);
    while (SkipOperator("**")) {
      left = MakeBinary(BinaryOperator::kPower, line, std::move(left), ParseUnary(true));
      line = Current().line;
    }
    return left;
  }

  ExpressionPointer ParseUnary(bool with_filter) {
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

  ExpressionPointer ParsePrimary(bool with_namespace) {
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

  ExpressionPointer ParsePostfix(ExpressionPointer node) {
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

  ExpressionPointer ParseFilterExpression(ExpressionPointer node) {
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

  ExpressionPointer ParseSubscript(ExpressionPointer object) {
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
      // A key may itself be a slice of something; one that is a slice has no object yet.
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

  // A key, or a slice whose object is still to be set.
  ExpressionPointer ParseSubscribed() {
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

  std::unique_ptr<CallArguments> ParseArguments(Expression& parent) {
    const Nesting nesting(*this);
    const int line = Current().line;
    ExpectOperator("(");
    auto arguments = std::make_unique<CallArguments>();
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
        for (const auto& [other, unused] : arguments->keyword) {
          if (other == name) FailAt(line, "keyword argument repeated: " + name);
        }
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

  ExpressionPointer ParseCall(ExpressionPointer callee) {
    auto node = MakeOf(Kind::kCall, Current().line, std::move(callee));
    node->arguments = ParseArguments(*node);
    return node;
  }

  std::string ParseDottedName() {
    std::string name = ExpectAnyName();
    while (SkipOperator(".")) name += "." + ExpectAnyName();
    return name;
  }

  // One filter, behind its "|".
  ExpressionPointer ParseFilter(ExpressionPointer input) {
    auto node = Make(Kind::kFilter, Current().line);
    node->name = ParseDottedName();
    Add(*node, std::move(input));
    if (IsOperator("(")) node->arguments = ParseArguments(*node);
    return node;
  }

  ExpressionPointer ParseFilters(ExpressionPointer input) {
    while (SkipOperator("|")) input = ParseFilter(std::move(input));
    return input;
  }

  bool StartsTestArgument() const {
    switch (Current().kind) {
      case Token::Kind::kName: return !Matches(Current(), {"else", "or", "and"});
      case Token::Kind::kString:
      case Token::Kind::kInteger:
      case Token::Kind::kFloat: return true;
      default: return IsOperator("[") || IsOperator("{");
    }
  }

  ExpressionPointer ParseTest(ExpressionPointer input) {
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

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int nesting_ = 0;
};

}  // namespace

Block Parse(std::string_view source) {
  return Parser(source).ParseTemplate();
}

}  // namespace sluice::jinja
