#include "constraints/bounded_strings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr std::string_view kSuffix = "_characters";
// Up to this a mask a position is cheaper than counting.
constexpr int kFewPositions = 16;
// A least length is a chain of positions, whatever the most.
constexpr int kMostLeast = 512;

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

// The length of a quoted string or a character class at the beginning of `text`; 1 for all else.
size_t LengthOfLiteral(std::string_view text) {
  if (text[0] != '"' && text[0] != '[') return 1;
  const char end = text[0] == '"' ? '"' : ']';
  size_t i = 1;
  while (i < text.size() && text[i] != end) i += text[i] == '\\' ? 2 : 1;
  return std::min(i + 1, text.size());
}

// xgrammar prints \xHH and reads as many digits as follow: \u00HH is read as it is meant.
void AppendLiteral(std::string& out, std::string_view literal) {
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      out += literal[i];
    } else {
      ++i;
      out += literal[i] == 'x' ? std::string("\\u00") : std::string{'\\', literal[i]};
    }
  }
}

struct Repetition {
  int least = 0, most = 0;
  size_t length = 0;  // of "{least, most}"
};

std::optional<Repetition> ReadRepetition(std::string_view text) {
  Repetition found;
  const char* const end = text.data() + text.size();
  if (!text.starts_with('{')) return std::nullopt;
  const auto least = std::from_chars(text.data() + 1, end, found.least);
  if (least.ec != std::errc() || !std::string_view(least.ptr, end).starts_with(", "))
    return std::nullopt;
  const auto most = std::from_chars(least.ptr + 2, end, found.most);
  if (most.ec != std::errc() || most.ptr == end || *most.ptr != '}') return std::nullopt;
  found.length = static_cast<size_t>(most.ptr + 1 - text.data());
  return found;
}

}  // namespace

std::optional<std::string> CountBoundedStrings(std::string_view ebnf) {
  std::string changed;
  std::string rules;
  std::set<std::string> added;
  size_t i = 0;
  while (i < ebnf.size()) {
    if (!IsNameCharacter(ebnf[i])) {
      const size_t length = LengthOfLiteral(ebnf.substr(i));
      AppendLiteral(changed, ebnf.substr(i, length));
      i += length;
      continue;
    }
    size_t end = i;
    while (end < ebnf.size() && IsNameCharacter(ebnf[end])) ++end;
    const std::string_view name = ebnf.substr(i, end - i);
    i = end;
    const auto repetition =
        name.ends_with(kSuffix) ? ReadRepetition(ebnf.substr(end)) : std::nullopt;
    if (!repetition || repetition->most <= kFewPositions || repetition->least > kMostLeast) {
      changed += name;
      continue;
    }
    const std::string counted = fmt::format("{}_counted_{}", name, repetition->most);
    if (added.insert(counted).second) {
      rules += fmt::format("{}[max_chars={}] ::= {}{{{}, -1}}\n", counted, repetition->most, name,
                           repetition->least);
    }
    changed += counted;
    i += repetition->length;
  }
  if (rules.empty()) return std::nullopt;
  if (!changed.ends_with('\n')) changed += '\n';
  return changed + rules;
}

}  // namespace sluice
