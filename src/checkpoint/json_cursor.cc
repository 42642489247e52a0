#include "checkpoint/json_cursor.h"

#include <limits>

#include <fmt/format.h>
#include "base/utf8.h"

namespace sluice {
namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

tl::unexpected<Error> JsonCursor::Bad(std::string_view what) const {
  return Fail(ErrorCode::kInvalidData, fmt::format("invalid JSON at byte {}: {}", position_, what));
}

char JsonCursor::Peek() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return c;
    ++position_;
  }
  return 0;
}

bool JsonCursor::AtEnd() {
  Peek();
  return position_ == text_.size();
}

bool JsonCursor::Consume(char c) {
  if (Peek() != c || position_ == text_.size()) return false;
  ++position_;
  return true;
}

Status JsonCursor::Expect(char c, std::string_view where) {
  if (Consume(c)) return {};
  return Bad(fmt::format("expected '{}' in {}", c, where));
}

Result<uint32_t> JsonCursor::Hex4() {
  if (text_.size() - position_ < 4) return Bad("unfinished \\u escape");
  uint32_t code = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = text_[position_++];
    uint32_t digit = 0;
    if (IsDigit(c)) {
      digit = static_cast<uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<uint32_t>(c - 'a' + 10);
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<uint32_t>(c - 'A' + 10);
    } else {
      return Bad("\\u needs four hexadecimal digits");
    }
    code = code << 4 | digit;
  }
  return code;
}

Status JsonCursor::Escape(std::string& out) {
  if (position_ == text_.size()) return Bad("unfinished escape");
  switch (const char c = text_[position_++]) {
    case '"':
    case '\\':
    case '/': out.push_back(c); return {};
    case 'b': out.push_back('\b'); return {};
    case 'f': out.push_back('\f'); return {};
    case 'n': out.push_back('\n'); return {};
    case 'r': out.push_back('\r'); return {};
    case 't': out.push_back('\t'); return {};
    case 'u': break;
    default: return Bad("unknown escape");
  }
  ASSIGN_OR_RETURN(uint32_t code, Hex4());
  if (code >= 0xDC00 && code <= 0xDFFF) return Bad("lone low surrogate");
  if (code >= 0xD800 && code <= 0xDBFF) {
    if (text_.substr(position_, 2) != "\\u") return Bad("lone high surrogate");
    position_ += 2;
    ASSIGN_OR_RETURN(const uint32_t low, Hex4());
    if (low < 0xDC00 || low > 0xDFFF) return Bad("lone high surrogate");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  AppendUtf8(out, code);
  return {};
}

Result<std::string> JsonCursor::String(size_t max_bytes) {
  RETURN_IF_ERROR(Expect('"', "front of a string"));
  std::string out;
  while (position_ < text_.size()) {
    const char c = text_[position_++];
    if (c == '"') return out;
    if (static_cast<unsigned char>(c) < 0x20) return Bad("control character in a string");
    if (c == '\\') {
      RETURN_IF_ERROR(Escape(out));
    } else {
      out.push_back(c);
    }
    if (out.size() > max_bytes) return Bad(fmt::format("string longer than {} bytes", max_bytes));
  }
  return Bad("unfinished string");
}

Result<uint64_t> JsonCursor::Unsigned(std::string_view what) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const auto bad = [&](std::string_view found) {
    return Bad(fmt::format("{} must be a non-negative integer below 2^64, found {}", what, found));
  };
  const char first = Peek();
  if (!IsDigit(first)) return bad(first == '-' ? "a negative number" : "no number");
  uint64_t value = 0;
  const size_t start = position_;
  while (position_ < text_.size() && IsDigit(text_[position_])) {
    const uint64_t digit = static_cast<uint64_t>(text_[position_] - '0');
    if (value > (kMax - digit) / 10) return bad("a larger one");
    value = value * 10 + digit;
    ++position_;
  }
  if (first == '0' && position_ - start > 1) return bad("leading zeros");
  if (position_ < text_.size()) {
    const char next = text_[position_];
    if (next == '.' || next == 'e' || next == 'E') return bad("a fraction or exponent");
  }
  return value;
}

Status JsonCursor::SkipNumber() {
  const auto digits = [&] {
    const size_t start = position_;
    while (position_ < text_.size() && IsDigit(text_[position_])) ++position_;
    return position_ > start;
  };
  const auto take = [&](char c) {
    if (position_ == text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  };
  take('-');
  if (!take('0') && !digits()) return Bad("expected a value");
  if (take('.') && !digits()) return Bad("expected digits after the point");
  if (take('e') || take('E')) {
    if (!take('+')) take('-');
    if (!digits()) return Bad("expected digits in the exponent");
  }
  return {};
}

Status JsonCursor::Skip(int max_depth) {
  const char c = Peek();
  if (c == '{' || c == '[') {
    if (max_depth <= 0) return Bad("nested too deeply");
    if (c == '[') return Array("an array", [&] { return Skip(max_depth - 1); });
    return Object("an object", text_.size(), [&](std::string) { return Skip(max_depth - 1); });
  }
  if (c == '"') {
    ASSIGN_OR_RETURN([[maybe_unused]] const std::string text, String(text_.size()));
    return {};
  }
  for (const std::string_view word : {"true", "false", "null"}) {
    if (text_.substr(position_, word.size()) == word) {
      position_ += word.size();
      return {};
    }
  }
  return SkipNumber();
}

}  // namespace sluice
