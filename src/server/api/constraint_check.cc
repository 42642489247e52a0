#include "server/api/constraint_check.h"

#include <algorithm>

#include <fmt/format.h>

namespace sluice {
namespace {

// The end of the class that `pattern[begin]` opens, npos if there is none.
size_t EndOfClass(std::string_view pattern, size_t begin) {
  size_t at = begin + 1;
  if (at < pattern.size() && pattern[at] == '^') ++at;
  if (at < pattern.size() && pattern[at] == ']') ++at;  // A member, where it stands first.
  for (; at < pattern.size(); ++at) {
    if (pattern[at] == '\\') {
      ++at;
    } else if (pattern[at] == ']') {
      return at;
    }
  }
  return std::string_view::npos;
}

}  // namespace

std::optional<std::string> RegexMistake(std::string_view pattern) {
  int depth = 0;
  bool repeatable = false;
  for (size_t at = 0; at < pattern.size(); ++at) {
    switch (pattern[at]) {
      case '\\':
        if (++at == pattern.size()) return "a backslash with nothing behind it";
        repeatable = true;
        break;
      case '[':
        at = EndOfClass(pattern, at);
        if (at == std::string_view::npos) return "unclosed character class";
        repeatable = true;
        break;
      case '(':
        ++depth;
        repeatable = false;
        // "(?:", "(?i)": no repetition.
        if (at + 1 < pattern.size() && pattern[at + 1] == '?') ++at;
        break;
      case ')':
        if (--depth < 0) return "unopened group";
        repeatable = true;
        break;
      case '*':
      case '+':
      case '?':
        if (!repeatable) return fmt::format("'{}' with nothing to repeat", pattern[at]);
        break;
      case '|': repeatable = false; break;
      default: repeatable = true;
    }
  }
  if (depth > 0) return "unclosed group";
  return std::nullopt;
}

std::optional<std::string> GrammarMistake(std::string_view grammar) {
  if (grammar.find("::=") == std::string_view::npos && grammar.find(':') == std::string_view::npos)
    return "no rule in it";
  int depth = 0;
  for (size_t at = 0; at < grammar.size(); ++at) {
    switch (grammar[at]) {
      case '#': at = std::min(grammar.find('\n', at), grammar.size()); break;
      case '"': {
        size_t end = at + 1;
        while (end < grammar.size() && grammar[end] != '"') end += grammar[end] == '\\' ? 2 : 1;
        if (end >= grammar.size()) return "unclosed quotes";
        at = end;
        break;
      }
      case '[':
        at = EndOfClass(grammar, at);
        if (at == std::string_view::npos) return "unclosed character class";
        break;
      case '(': ++depth; break;
      case ')':
        if (--depth < 0) return "unopened parenthesis";
        break;
      default: break;
    }
  }
  if (depth > 0) return "Expected ')'";
  return std::nullopt;
}

}  // namespace sluice
