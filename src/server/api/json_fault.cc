#include "server/api/json_fault.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>

namespace sluice {
namespace {

class Finder {
 public:
  Finder(std::string_view text, int max_depth) : text_(text), max_depth_(max_depth) {}

  JsonFault Find() {
    SkipBlanks();
    if (!SkipValue(0)) return fault_;
    SkipBlanks();
    if (at_ < text_.size()) Fail("the end of the text");
    return fault_;
  }

 private:
  using Kind = JsonFault::Kind;

  // All functions return false once a fault is noted.
  bool Fail(std::string_view expected) { return Fail(Kind::kSyntax, at_, expected); }
  bool Fail(Kind kind, size_t offset, std::string_view expected = {}) {
    fault_ = {kind, offset, expected, member_};
    return false;
  }

  char Next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool TakeDigits() {
    const size_t begin = at_;
    while (Next() >= '0' && Next() <= '9') ++at_;
    return at_ > begin;
  }
  void SkipBlanks() {
    while (Next() == ' ' || Next() == '\t' || Next() == '\n' || Next() == '\r') ++at_;
  }

  bool SkipValue(int depth) {
    if (Next() == '{' || Next() == '[') return SkipContainer(depth);
    if (Next() == '"') return SkipString();
    if (Take("null") || Take("true") || Take("false")) return true;
    const size_t begin = at_;
    if (Take("NaN") || Take("Infinity") || Take("-Infinity")) return Fail(Kind::kNotFinite, begin);
    return SkipNumber();
  }

  bool SkipContainer(int depth) {
    if (depth >= max_depth_) return Fail(Kind::kTooDeep, at_);
    const bool is_object = Next() == '{';
    const std::string_view close = is_object ? "}" : "]";
    ++at_;
    SkipBlanks();
    if (Take(close)) return true;
    while (true) {
      if (is_object && !SkipName(depth)) return false;
      if (!SkipValue(depth + 1)) return false;
      SkipBlanks();
      if (Take(close)) return true;
      if (!Take(",")) return Fail(is_object ? "',' or '}'" : "',' or ']'");
      SkipBlanks();
    }
  }

  bool SkipName(int depth) {
    if (Next() != '"') return Fail("a member's name in double quotes");
    const size_t begin = at_;
    if (!SkipString()) return false;
    if (depth == 0) member_ = text_.substr(begin + 1, at_ - begin - 2);
    SkipBlanks();
    if (!Take(":")) return Fail("':'");
    SkipBlanks();
    return true;
  }

  bool SkipString() {
    const size_t begin = at_++;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20) return Fail("no control character in a string");
      if (c == '\\') {
        if (!SkipEscape()) return false;
      } else {
        ++at_;
      }
    }
    return Fail(Kind::kSyntax, begin, "a string that ends with '\"'");
  }

  bool SkipEscape() {
    const size_t begin = at_++;
    if (Next() != 'u') {
      if (Next() == '\0' || std::string_view("\"\\/bfnrt").find(Next()) == std::string_view::npos)
        return Fail(Kind::kSyntax, begin, "an escape such as \\n or \\u00e9");
      ++at_;
      return true;
    }
    const std::optional<uint32_t> code = TakeUnit();
    if (!code) return Fail(Kind::kSyntax, begin, "four hexadecimal digits behind \\u");
    if (*code < 0xD800 || *code >= 0xE000) return true;
    if (*code < 0xDC00 && Take("\\")) {
      const std::optional<uint32_t> low = Next() == 'u' ? TakeUnit() : std::nullopt;
      if (low && *low >= 0xDC00 && *low < 0xE000) return true;
    }
    return Fail(Kind::kSurrogate, begin);
  }

  // "u00e9".
  std::optional<uint32_t> TakeUnit() {
    const std::string_view digits = text_.substr(at_ + 1, 4);
    uint32_t code = 0;
    const auto [stop, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (error != std::errc() || stop != digits.data() + 4) return std::nullopt;
    at_ += 5;
    return code;
  }

  bool SkipNumber() {
    const size_t begin = at_;
    Take("-");
    if (!Take("0") && !TakeDigits()) return Fail(Kind::kSyntax, begin, "a value");
    if (Take(".") && !TakeDigits()) return Fail("a digit");
    if (Take("e") || Take("E")) {
      if (!Take("-")) Take("+");
      if (!TakeDigits()) return Fail("a digit");
    }
    const std::string number(text_.substr(begin, at_ - begin));
    return std::isfinite(std::strtod(number.c_str(), nullptr)) || Fail(Kind::kNotFinite, begin);
  }

  const std::string_view text_;
  const int max_depth_;
  size_t at_ = 0;
  std::string_view member_;
  JsonFault fault_;
};

}  // namespace

JsonFault FindJsonFault(std::string_view text, int max_depth) {
  return Finder(text, max_depth).Find();
}

}  // namespace sluice
