// Reads the tokens of a template one by one.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/lexer.h"

namespace sluice::jinja {

// Maximum nesting of brackets, signs and blocks in a source.
inline constexpr int kMaxNesting = 120;

// Token operations for all parts of the parser: look, skip, expect. Failures are kSyntax, with the
// line number.
class TokenReader {
 protected:
  explicit TokenReader(std::string_view source) : tokens_(Tokenize(source)) {}

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
    explicit Nesting(TokenReader& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting) {
        --parser_.nesting_;
        parser.FailHere("expressions or blocks are nested deeper than " +
                        std::to_string(kMaxNesting));
      }
    }
    ~Nesting() { --parser_.nesting_; }

   private:
    TokenReader& parser_;
  };

 private:
  std::vector<Token> tokens_;
  size_t position_ = 0;
  int nesting_ = 0;
};

}  // namespace sluice::jinja
