// Cuts the source of a template into tokens and applies the white-space rules of trim_blocks and
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
    kOperator,  // The operator is in `text`.
    kEnd,
  };
  Kind kind = Kind::kEnd;
  int line = 0;
  std::string text;  // For kText, kName, kString (unescaped) and kOperator.
  Value number;      // For kInteger and kFloat.
};

// Fails (kSyntax) with the line number. The last token is kEnd.
std::vector<Token> Tokenize(std::string_view source);
// Describes a token for an error message: "'endif'", "end of print statement", ...
std::string Describe(const Token& token);

}  // namespace sluice::jinja
