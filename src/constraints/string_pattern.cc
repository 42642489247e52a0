#include "constraints/string_pattern.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();
// Maximum count in a repetition, because the engine expands repetitions.
constexpr int64_t kMostRepeated = 1000;

struct Repeated {
  int64_t least = 1, most = 1;
};

// Reads "*", "+", "?", "{n}", "{n,}" or "{n,m}"; "" means exactly once.
std::optional<Repeated> ReadQuantifier(std::string_view text) {
  if (text.empty()) return Repeated{1, 1};
  if (text == "*") return Repeated{0, kUnbounded};
  if (text == "+") return Repeated{1, kUnbounded};
  if (text == "?") return Repeated{0, 1};
  if (text.size() < 3 || text.front() != '{' || text.back() != '}') return std::nullopt;
  Repeated found;
  const char* const end = text.data() + text.size() - 1;
  const auto least = std::from_chars(text.data() + 1, end, found.least);
  if (least.ec != std::errc()) return std::nullopt;
  found.most = found.least;
  if (least.ptr == end) return found;
  if (*least.ptr != ',') return std::nullopt;
  found.most = kUnbounded;
  if (least.ptr + 1 == end) return found;
  const auto most = std::from_chars(least.ptr + 1, end, found.most);
  if (most.ec != std::errc() || most.ptr != end) return std::nullopt;
  return found;
}

// Returns the length of a class, a class escape or a single character at the beginning of `text`; 0
// if there is none.
size_t LengthOfClass(std::string_view text) {
  if (text.empty()) return 0;
  if (text[0] == '\\') {
    return text.size() > 1 && std::string_view("dDwWsS.").find(text[1]) != std::string_view::npos
               ? 2
               : 0;
  }
  if (text[0] != '[')
    return std::string_view("()|*+?{}^$]").find(text[0]) == std::string_view::npos &&
                   static_cast<unsigned char>(text[0]) < 0x80
               ? 1
               : 0;
  size_t i = 1;
  if (i < text.size() && text[i] == '^') ++i;
  if (i < text.size() && text[i] == ']') ++i;
  while (i < text.size() && text[i] != ']') i += text[i] == '\\' ? 2 : 1;
  return i < text.size() ? i + 1 : 0;
}

}  // namespace

std::optional<std::string> BoundedPattern(std::string_view pattern, int64_t least, int64_t most) {
  if (pattern.starts_with('^')) pattern.remove_prefix(1);
  if (pattern.ends_with('$') && !pattern.ends_with("\\$")) pattern.remove_suffix(1);
  const size_t length = LengthOfClass(pattern);
  if (length == 0) return std::nullopt;
  std::optional<Repeated> repeated = ReadQuantifier(pattern.substr(length));
  if (!repeated) return std::nullopt;
  repeated->least = std::max(repeated->least, least);
  repeated->most = std::min(repeated->most, most);
  const bool is_bounded = repeated->most != kUnbounded;
  if (repeated->least > repeated->most ||
      (is_bounded ? repeated->most : repeated->least) > kMostRepeated)
    return std::nullopt;
  return fmt::format("^{}{{{},{}}}$", pattern.substr(0, length), repeated->least,
                     is_bounded ? fmt::format("{}", repeated->most) : "");
}

std::string_view LiteralBeginning(std::string_view pattern) {
  if (!pattern.starts_with('^') || pattern.find('|') != std::string_view::npos) return "";
  pattern.remove_prefix(1);
  size_t length = std::min(pattern.find_first_of("\\[](){}.*+?^$"), pattern.size());
  // A quantifier may make the last character optional.
  if (length > 0 && length < pattern.size() &&
      std::string_view("*?{").find(pattern[length]) != std::string_view::npos)
    --length;
  return pattern.substr(0, length);
}

std::string WithOwnEnds(std::string_view pattern) {
  std::string out;
  std::vector<size_t> groups;  // offset in `out` where each open group begins
  size_t i = 0;
  const auto copy = [&](size_t length) {
    out += pattern.substr(i, length);
    i += std::min(length, pattern.size() - i);
  };
  while (i < pattern.size()) {
    const char c = pattern[i];
    if (c == '\\') {
      copy(2);
    } else if (c == '[') {
      const size_t length = LengthOfClass(pattern.substr(i));
      copy(length == 0 ? pattern.size() : length);
    } else if (c == '(') {
      groups.push_back(out.size());
      copy(1);
    } else if (c == ')' && !groups.empty()) {
      const size_t begin = groups.back();
      groups.pop_back();
      copy(1);
      if (i < pattern.size() && pattern[i] == '?') {
        out.insert(begin, "(?:()");
        out += "())";
      }
    } else if (c == '{') {
      const size_t end = pattern.find('}', i);
      const size_t length = end == std::string_view::npos ? 1 : end + 1 - i;
      const bool is_quantifier = ReadQuantifier(pattern.substr(i, length)).has_value();
      copy(is_quantifier ? length : 1);
      if (!is_quantifier) continue;
      if (i < pattern.size() && pattern[i] == '?') copy(1);  // a lazy quantifier
      out += "()";
    } else {
      copy(1);
    }
  }
  return out;
}

bool MayBreakStrings(std::string_view pattern) {
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const auto c = static_cast<unsigned char>(pattern[i]);
    if (c == '\\' && i + 1 < pattern.size()) {
      ++i;
      if (!in_class && std::string_view("\\\"nrtfvxuc0").find(pattern[i]) != std::string_view::npos)
        return true;
    } else if (c == '"' || c < 0x20) {
      if (!in_class) return true;
    } else if (c > 0x7e) {
      // The engine does not compile a regex with these characters to an automaton that respects
      // JSON.
      if (pattern.find_first_of(".[\\") != std::string_view::npos) return true;
    } else if (c == '[') {
      in_class = true;
    } else if (c == ']') {
      in_class = false;
    }
  }
  return false;
}

}  // namespace sluice
