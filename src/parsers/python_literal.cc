#include "parsers/python_literal.h"

#include <cstdint>

#include "base/ascii.h"
#include "base/json.h"
#include "base/utf8.h"

namespace sluice {
namespace {

constexpr int kMaxLiteralDepth = 64;

// Reads one literal from the front of `text_`. Returns false if there is none.
class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  bool Whole(std::string& out) {
    if (!Value(out, 0)) return false;
    SkipBlanks();
    return at_ == text_.size();
  }

 private:
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void SkipBlanks() {
    at_ = text_.find_first_not_of(" \t\r\n", at_);
    if (at_ == std::string_view::npos) at_ = text_.size();
  }

  bool Take(char c) {
    SkipBlanks();
    if (Peek() != c) return false;
    ++at_;
    return true;
  }

  bool Value(std::string& out, int depth) {
    if (depth > kMaxLiteralDepth) return false;
    SkipBlanks();
    switch (Peek()) {
      case '[': return List(out, ']', depth);
      case '(': return List(out, ')', depth);
      case '{': return Dict(out, depth);
      case '\'':
      case '"': {
        std::string value;
        if (!String(value)) return false;
        json::AppendString(out, value);
        return true;
      }
      default: return Word(out);
    }
  }

  bool List(std::string& out, char close, int depth) {
    ++at_;
    out += '[';
    for (bool first = true; !Take(close); first = false) {
      if (!first && !Take(',')) return false;
      if (!first && Take(close)) break;
      if (!first) out += ", ";
      if (!Value(out, depth + 1)) return false;
    }
    out += ']';
    return true;
  }

  bool Dict(std::string& out, int depth) {
    ++at_;
    out += '{';
    for (bool first = true; !Take('}'); first = false) {
      if (!first && !Take(',')) return false;
      if (!first && Take('}')) break;
      if (!first) out += ", ";
      std::string key;
      if (!Value(key, depth + 1)) return false;
      if (key.front() == '[' || key.front() == '{') return false;
      if (key.front() == '"') {
        out += key;
      } else {
        json::AppendString(out, key);
      }
      if (!Take(':')) return false;
      out += ": ";
      if (!Value(out, depth + 1)) return false;
    }
    out += '}';
    return true;
  }

  bool Word(std::string& out) {
    const size_t end = text_.find_first_of(" \t\r\n,:]})", at_);
    const std::string_view word =
        text_.substr(at_, end == std::string_view::npos ? end : end - at_);
    at_ += word.size();
    if (word == "True" || word == "true") {
      out += "true";
    } else if (word == "False" || word == "false") {
      out += "false";
    } else if (word == "None" || word == "null") {
      out += "null";
    } else {
      const auto number = json::Parse(word);
      if (!number || !number->is_number()) return false;
      out += word;
    }
    return true;
  }

  // Reads the digits of \x, \u or \U.
  bool Code(int digits, uint32_t& code) {
    code = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const int digit = HexDigit(Peek());
      if (digit < 0) return false;
      code = code * 16 + static_cast<uint32_t>(digit);
    }
    return code <= 0x10FFFF;
  }

  bool Escape(std::string& out) {
    const char c = Peek();
    if (at_++ >= text_.size()) return false;
    uint32_t code = 0;
    switch (c) {
      case 'n': out += '\n'; return true;
      case 't': out += '\t'; return true;
      case 'r': out += '\r'; return true;
      case 'b': out += '\b'; return true;
      case 'f': out += '\f'; return true;
      case 'v': out += '\v'; return true;
      case 'a': out += '\a'; return true;
      case '\n': return true;
      case '\\':
      case '\'':
      case '"': out += c; return true;
      case 'x':
        if (!Code(2, code)) return false;
        break;
      case 'u':
        if (!Code(4, code)) return false;
        break;
      case 'U':
        if (!Code(8, code)) return false;
        break;
      default:
        if (c < '0' || c > '7') {  // Python keeps unknown escapes unchanged.
          out += '\\';
          out += c;
          return true;
        }
        code = static_cast<uint32_t>(c - '0');
        for (int i = 0; i < 2 && Peek() >= '0' && Peek() <= '7'; ++i, ++at_) {
          code = code * 8 + static_cast<uint32_t>(Peek() - '0');
        }
    }
    AppendUtf8(out, code);
    return true;
  }

  bool String(std::string& out) {
    const char quote = text_[at_];
    const std::string triple(3, quote);
    const bool is_triple = text_.substr(at_).starts_with(triple);
    at_ += is_triple ? 3 : 1;
    while (at_ < text_.size()) {
      if (is_triple ? text_.substr(at_).starts_with(triple) : text_[at_] == quote) {
        at_ += is_triple ? 3 : 1;
        return true;
      }
      if (text_[at_] != '\\') {
        out += text_[at_++];
        continue;
      }
      ++at_;
      if (!Escape(out)) return false;
    }
    return false;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::string> PythonLiteralToJson(std::string_view text) {
  std::string out;
  if (!LiteralReader(text).Whole(out)) return std::nullopt;
  return out;
}

}  // namespace sluice
