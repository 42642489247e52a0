#include "chat/jinja/lexer.h"

#include <algorithm>
#include <cstdlib>

#include "chat/jinja/text.h"

namespace sluice::jinja {

namespace {

// Replaces "\r\n" and "\r" by "\n" and removes one line end at the end of the template.
std::string NormalizeLines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool IsAsciiDigit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeLines(source)) {}

  std::vector<Token> Run() {
    while (position_ < source_.size()) LexRoot();
    Push(Token::Kind::kEnd);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void FailAt(int line, std::string message) const {
    throw Failure{FailureKind::kSyntax, std::move(message), line};
  }

  void Push(Token::Kind kind, std::string text = "") {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }

  char At(size_t position) const { return position < source_.size() ? source_[position] : '\0'; }
  bool StartsWith(std::string_view what) const {
    return std::string_view(source_).substr(position_).starts_with(what);
  }

  // Moves to offset `end` and counts lines.
  void MoveTo(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(position_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    if (end > position_) line_starting_ = source_[end - 1] == '\n';
    position_ = end;
  }

  size_t SkipSpace(size_t position) const {
    while (position < source_.size()) {
      size_t next = position;
      if (!IsSpace(NextCodePoint(source_, next))) break;
      position = next;
    }
    return position;
  }

  // Pushes the text up to `end`, where a tag begins. `sign`: the tag's '-' or '+', or '\0'.
  void PushText(size_t end, char sign, bool is_print) {
    std::string_view text = std::string_view(source_).substr(position_, end - position_);
    if (sign == '-') {
      text = Strip(text, Side::kRight);
    } else if (sign != '+' && !is_print) {
      const size_t line_end = text.rfind('\n');
      const size_t start = line_end == std::string_view::npos ? 0 : line_end + 1;
      if ((start > 0 || line_starting_) && start < text.size() &&
          Strip(text.substr(start), Side::kLeft).empty()) {
        text = text.substr(0, start);
      }
    }
    if (!text.empty()) Push(Token::Kind::kText, std::string(text));
    MoveTo(end);
  }

  char SignAt(size_t position) const {
    const char c = At(position);
    return c == '-' || c == '+' ? c : '\0';
  }

  // Returns the end of "{% raw %}" if one starts at `position`, else 0.
  size_t RawBegin(size_t position) const {
    size_t next = position + 2;
    if (SignAt(next) != '\0') ++next;
    next = SkipSpace(next);
    const std::string_view rest = std::string_view(source_).substr(next);
    if (!rest.starts_with("raw")) return 0;
    next = SkipSpace(next + 3);
    const std::string_view end = std::string_view(source_).substr(next);
    if (end.starts_with("-%}")) return SkipSpace(next + 3);
    return end.starts_with("%}") ? next + 2 : 0;
  }

  void LexRoot() {
    size_t tag = position_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos) {
        PushText(source_.size(), '+', true);
        return;
      }
      const char c = At(tag + 1);
      if (c == '%' || c == '{' || c == '#') break;
      ++tag;
    }
    const char type = source_[tag + 1];
    const char sign = SignAt(tag + 2);
    PushText(tag, sign, type == '{');
    if (type == '%') {
      if (const size_t raw = RawBegin(tag)) {
        MoveTo(raw);
        LexRaw();
        return;
      }
    }
    const size_t inside = tag + 2 + (sign != '\0' ? 1 : 0);
    if (type == '#') {
      LexComment(inside);
    } else {
      Push(type == '{' ? Token::Kind::kPrintBegin : Token::Kind::kBlockBegin);
      MoveTo(inside);
      LexTag(type == '{');
    }
  }

  // Returns the position after a tag that ends at `end` and after the white space that the tag
  // trims. `sign`: the '-' or '+' before the tag's end, or '\0'.
  size_t AfterTag(size_t end, char sign, bool trims) const {
    if (sign == '-') return SkipSpace(end);
    return trims && sign != '+' && At(end) == '\n' ? end + 1 : end;
  }

  void LexComment(size_t inside) {
    const size_t end = source_.find("#}", inside);
    if (end == std::string::npos) {
      // As in jinja2, a comment that begins at the very end of the template is not an error.
      if (inside < source_.size()) FailAt(line_, "Missing end of comment tag");
      MoveTo(source_.size());
      return;
    }
    const char sign = end > inside ? SignAt(end - 1) : '\0';
    MoveTo(AfterTag(end + 2, sign, true));
  }

  void LexRaw() {
    for (size_t tag = source_.find("{%", position_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      size_t next = tag + 2;
      const char sign = SignAt(next);
      if (sign != '\0') ++next;
      next = SkipSpace(next);
      if (!std::string_view(source_).substr(next).starts_with("endraw")) continue;
      next = SkipSpace(next + 6);
      const char end_sign = SignAt(next);
      if (end_sign != '\0') ++next;
      if (!std::string_view(source_).substr(next).starts_with("%}")) continue;
      PushText(tag, sign, false);
      MoveTo(AfterTag(next + 2, end_sign, true));
      return;
    }
    if (position_ < source_.size()) FailAt(line_, "Missing end of raw directive");
  }

  bool LexTagEnd(bool is_print) {
    if (!brackets_.empty()) return false;
    const std::string_view close = is_print ? "}}" : "%}";
    char sign = '\0';
    if (!StartsWith(close)) {
      sign = SignAt(position_);
      if (sign == '\0' || (is_print && sign == '+')) return false;
      if (!std::string_view(source_).substr(position_ + 1).starts_with(close)) return false;
    }
    Push(is_print ? Token::Kind::kPrintEnd : Token::Kind::kBlockEnd);
    MoveTo(AfterTag(position_ + (sign == '\0' ? 2 : 3), sign, !is_print));
    return true;
  }

  void LexTag(bool is_print) {
    brackets_.clear();
    while (position_ < source_.size()) {
      if (LexTagEnd(is_print)) return;
      const size_t after_space = SkipSpace(position_);
      if (after_space != position_) {
        MoveTo(after_space);
        continue;
      }
      const char c = source_[position_];
      if (IsAsciiDigit(c)) {
        LexNumber();
      } else if (c == '\'' || c == '"') {
        LexString(c);
      } else {
        size_t next = position_;
        if (IsIdentifierPart(NextCodePoint(source_, next))) {
          LexName();
        } else {
          LexOperator();
        }
      }
    }
    // The parser reports the missing end of the tag.
  }

  void LexName() {
    size_t end = position_;
    bool is_valid = true;
    while (end < source_.size()) {
      size_t next = end;
      const char32_t c = NextCodePoint(source_, next);
      if (!IsIdentifierPart(c)) break;
      if (end == position_ && !IsIdentifierStart(c)) is_valid = false;
      end = next;
    }
    if (!is_valid) FailAt(line_, "Invalid character in identifier");
    Push(Token::Kind::kName, source_.substr(position_, end - position_));
    MoveTo(end);
  }

  // Returns the end of digits that begin at `position`; single underscores may separate them.
  size_t SkipDigits(size_t position, const char* allowed = "0123456789") const {
    const std::string_view digits(allowed);
    const auto is_digit = [&](size_t i) {
      return i < source_.size() &&
             digits.find(static_cast<char>(std::tolower(source_[i]))) != std::string_view::npos;
    };
    while (is_digit(position) || (At(position) == '_' && is_digit(position + 1))) ++position;
    return position;
  }

  static std::string WithoutUnderscores(std::string_view text) {
    std::string out(text);
    out.erase(std::remove(out.begin(), out.end(), '_'), out.end());
    return out;
  }

  void PushNumber(Token::Kind kind, Value value, size_t end) {
    Push(kind);
    tokens_.back().number = std::move(value);
    MoveTo(end);
  }

  void LexNumber() {
    const bool may_be_float = position_ == 0 || source_[position_ - 1] != '.';
    size_t end = SkipDigits(position_);
    if (may_be_float) {
      size_t real_end = end;
      bool is_real = false;
      if (At(end) == '.' && IsAsciiDigit(At(end + 1))) {
        real_end = SkipDigits(end + 1);
        is_real = true;
      }
      if ((At(real_end) | 0x20) == 'e') {
        size_t exponent = real_end + 1;
        if (At(exponent) == '+' || At(exponent) == '-') ++exponent;
        if (IsAsciiDigit(At(exponent))) {
          real_end = SkipDigits(exponent);
          is_real = true;
        }
      }
      if (is_real) {
        const std::string digits =
            WithoutUnderscores(source_.substr(position_, real_end - position_));
        PushNumber(Token::Kind::kFloat, Value::Float(std::strtod(digits.c_str(), nullptr)),
                   real_end);
        return;
      }
    }
    const char second = static_cast<char>(At(position_ + 1) | 0x20);
    const auto based = [&](int base, const char* allowed) {
      const size_t start = position_ + 2;
      const size_t stop = SkipDigits(start, allowed);
      if (stop == start) return false;
      const std::string digits = WithoutUnderscores(source_.substr(start, stop - start));
      if (digits.size() > 4300) FailAt(line_, "an integer has too many digits");
      PushNumber(Token::Kind::kInteger, Value::Integer(BigInteger::FromDigits(digits, base)), stop);
      return true;
    };
    if (source_[position_] == '0') {
      if (second == 'x' && based(16, "0123456789abcdef")) return;
      if (second == 'o' && based(8, "01234567")) return;
      if (second == 'b' && based(2, "01")) return;
      end = SkipDigits(position_, "0");
    }
    const std::string digits = WithoutUnderscores(source_.substr(position_, end - position_));
    if (digits.size() > 4300) FailAt(line_, "an integer has too many digits");
    PushNumber(Token::Kind::kInteger, Value::Integer(BigInteger::FromDecimal(digits)), end);
  }

  void LexString(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size())
      FailAt(line_, std::string("unexpected char ") + quote + ": a string that does not end");
    Push(Token::Kind::kString, Unescape(source_.substr(position_ + 1, end - position_ - 1)));
    MoveTo(end + 1);
  }

  std::string Unescape(std::string_view text) const {
    std::string out;
    for (size_t i = 0; i < text.size();) {
      if (text[i] != '\\' || i + 1 >= text.size()) {
        out.push_back(text[i++]);
        continue;
      }
      const char c = text[i + 1];
      i += 2;
      switch (c) {
        case '\n': break;
        case '\\':
        case '\'':
        case '"': out.push_back(c); break;
        case 'a': out.push_back('\a'); break;
        case 'b': out.push_back('\b'); break;
        case 'f': out.push_back('\f'); break;
        case 'n': out.push_back('\n'); break;
        case 'r': out.push_back('\r'); break;
        case 't': out.push_back('\t'); break;
        case 'v': out.push_back('\v'); break;
        case 'x': AppendHexEscape(out, text, i, 2, "\\xXX"); break;
        case 'u': AppendHexEscape(out, text, i, 4, "\\uXXXX"); break;
        case 'U': AppendHexEscape(out, text, i, 8, "\\UXXXXXXXX"); break;
        case 'N': FailAt(line_, "the escape \\N{...} is not supported; write the character itself");
        default:
          if (c >= '0' && c <= '7') {
            char32_t value = static_cast<char32_t>(c - '0');
            for (int n = 1; n < 3 && i < text.size() && text[i] >= '0' && text[i] <= '7'; ++n) {
              value = value * 8 + static_cast<char32_t>(text[i++] - '0');
            }
            AppendUtf8(out, value);
          } else if (static_cast<unsigned char>(c) >= 0x80) {
            // jinja2 replaces a character like this one by an escape sequence before it processes
            // the backslash.
            size_t next = i - 1;
            AppendPythonEscape(out, NextCodePoint(text, next));
            i = next;
          } else {
            out.push_back('\\');
            out.push_back(c);
          }
      }
    }
    return out;
  }

  void AppendHexEscape(std::string& out, std::string_view text, size_t& i, int digits,
                       const char* form) const {
    char32_t value = 0;
    for (int n = 0; n < digits; ++n, ++i) {
      if (i >= text.size() || !std::isxdigit(static_cast<unsigned char>(text[i]))) {
        FailAt(line_, std::string("truncated ") + form + " escape");
      }
      const char c = static_cast<char>(text[i] | 0x20);
      value = value * 16 + static_cast<char32_t>(c <= '9' ? text[i] - '0' : c - 'a' + 10);
    }
    if (value > 0x10FFFF) FailAt(line_, "illegal Unicode character");
    if (value >= 0xD800 && value < 0xE000)
      FailAt(line_, "an escaped surrogate cannot be part of a text");
    AppendUtf8(out, value);
  }

  void LexOperator() {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [this](std::string_view op) { return StartsWith(op); });
    if (found == std::end(kOperators)) {
      std::string quoted;
      size_t next = position_;
      NextCodePoint(source_, next);
      AppendRepr(quoted, std::string_view(source_).substr(position_, next - position_));
      FailAt(line_, "unexpected char " + quoted + " at " + std::to_string(position_));
    }
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') {
      brackets_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty()) FailAt(line_, std::string("unexpected '") + c + "'");
      if (brackets_.back() != c)
        FailAt(line_, std::string("unexpected '") + c + "', expected '" + brackets_.back() + "'");
      brackets_.pop_back();
    }
    Push(Token::Kind::kOperator, std::string(*found));
    MoveTo(position_ + found->size());
  }

  std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // The last token ended a line.
  std::string brackets_;       // The closing brackets still expected in this tag, innermost last.
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  return Lexer(source).Run();
}

std::string Describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kText: return "template data / text";
    case Token::Kind::kPrintBegin: return "begin of print statement";
    case Token::Kind::kPrintEnd: return "end of print statement";
    case Token::Kind::kBlockBegin: return "begin of statement block";
    case Token::Kind::kBlockEnd: return "end of statement block";
    case Token::Kind::kString: return "string";
    case Token::Kind::kInteger: return "integer";
    case Token::Kind::kFloat: return "float";
    case Token::Kind::kEnd: return "end of template";
    default: return token.text;
  }
}

}  // namespace sluice::jinja
