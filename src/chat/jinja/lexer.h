// Cuts the source of a template into tokens, with the white-space rules of trim_blocks and
// lstrip_blocks applied.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/value.h"

namespace sluice::jinja {

struct Token {
  enum class Kind {
    kText,
    kPrintBegin,  // {{
    kPrintEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,  // text holds it.
    kEnd,
  };
  Kind kind = Kind::kEnd;
  int line = 0;
  std::string text;  // Of kText, kName, kString (unescaped), kOperator.
  Value number;      // Of kInteger, kFloat.
};

// Fails (kSyntax) with the line. The last token is kEnd.
std::vector<Token> Tokenize(std::string_view source);
// "'endif'", "end of print statement", ...: a token in an error message.
std::string Describe(const Token& token);

}  // namespace sluice::jinja
