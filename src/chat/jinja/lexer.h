// Cuts the source of a template into tokens, and applies the white-space rules of trim_blocks and
// lstrip_blocks.
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
    kOperator,  // `text` is the operator.
    kEnd,
  };
  Kind kind = Kind::kEnd;
  int line = 0;
  std::string text;  // Of kText, kName, kString (unescaped), kOperator.
  Value number;      // Of kInteger, kFloat.
};

// Fails (kSyntax) with the line. The last token is kEnd.
std::vector<Token> Tokenize(std::string_view source);
// Names a token in an error message: "'endif'", "end of print statement", ...
std::string Describe(const Token& token);

}  // namespace sluice::jinja
