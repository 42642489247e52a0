#include "chat/jinja/parser.h"

#include <unordered_set>

#include "chat/jinja/expression_parser.h"
#include "chat/jinja/repr.h"

namespace sluice::jinja {

namespace {

class Parser : public ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}

  Block ParseTemplate() { return ParseBody({}); }

 private:
  // Parses statements up to a tag with one of the names, which becomes the current token.
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

  // Parses the end of the current tag, then its body up to a tag with one of the names.
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
    std::unordered_set<std::string> names;
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
      if (!names.insert(parameter.name).second)
        FailHere("duplicate argument '" + parameter.name + "'");
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
};

}  // namespace

Block Parse(std::string_view source) {
  return Parser(source).ParseTemplate();
}

}  // namespace sluice::jinja
