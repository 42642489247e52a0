#include "constraints/bounded_strings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace sluice {
namespace {

// The character class of bounded strings in xgrammar's grammar, and the class that JSON allows.
constexpr std::string_view kClass = R"([^\"\\\r\n])";
constexpr std::string_view kJsonClass = R"([^\u0000-\u001f\"\\])";
// The bodies of rules for exactly one character of kClass, and for at most one.
constexpr std::string_view kOne = R"( ::= (([^\"\\\r\n])))";
constexpr std::string_view kOneAtMost = R"( ::= ("" | ([^\"\\\r\n])))";
constexpr std::string_view kString = "basic_string_sub";
constexpr std::string_view kBounded = "bounded_string_";
constexpr std::string_view kOpeningQuote = R"("\"" )";
constexpr std::string_view kClosingQuote = R"( "\"")";
// Up to this maximum length, a mask for each position is cheaper than counting.
constexpr int kFewPositions = 16;
// xgrammar counts only up to this minimum length, because the minimum length becomes a chain of
// positions.
constexpr int kMostCountedLeast = 512;

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

// Returns the length of a quoted string or a character class at the beginning of `text`; 1 for
// other text.
size_t LengthOfLiteral(std::string_view text) {
  if (text[0] != '"' && text[0] != '[') return 1;
  const char end = text[0] == '"' ? '"' : ']';
  size_t i = 1;
  while (i < text.size() && text[i] != end) i += text[i] == '\\' ? 2 : 1;
  return std::min(i + 1, text.size());
}

// Appends a literal, with \xHH written as \u00HH: xgrammar prints \xHH, but when it reads \x, it
// consumes all hexadecimal digits that follow.
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
  size_t length = 0;  // length of the text "{least, most}"
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

size_t LengthOfName(std::string_view text) {
  return static_cast<size_t>(std::ranges::find_if_not(text, IsNameCharacter) - text.begin());
}

// Returns the names of the rules that have this body.
std::set<std::string, std::less<>> RulesOf(std::string_view body, std::string_view ebnf) {
  std::set<std::string, std::less<>> names;
  for (size_t at = ebnf.find(body); at != std::string_view::npos; at = ebnf.find(body, at + 1)) {
    const size_t line = ebnf.rfind('\n', at) + 1;
    names.emplace(ebnf.substr(line, at - line));
  }
  return names;
}

// Returns the name of a rule whose characters xgrammar counts. Adds the rule unless `added`
// contains it.
std::string CountedRule(std::string_view name, const Repetition& repetition,
                        std::set<std::string>& added, std::string& rules) {
  const std::string counted = fmt::format("{}_counted_{}", name, repetition.most);
  if (added.insert(counted).second) {
    rules += fmt::format("{}[max_chars={}] ::= {}{{{}, -1}}\n", counted, repetition.most, name,
                         repetition.least);
  }
  return counted;
}

// Kinds of values that may contain strings.
enum Kinds : unsigned { kNone = 0, kText = 1, kList = 2, kObject = 4, kAll = 7 };

unsigned KindOf(const json::Value& value) {
  return value.is_string() ? kText : value.is_array() ? kList : value.is_object() ? kObject : kNone;
}

unsigned KindNamed(const json::Value& type) {
  if (!type.is_string()) return kAll;
  const std::string& name = type.as_string();
  return name == "string" ? kText : name == "array" ? kList : name == "object" ? kObject : kNone;
}

unsigned KindsOf(const json::Value& schema) {
  if (!schema.is_object()) return kAll;
  unsigned kinds = kNone;
  if (const json::Value* value = schema.Find("const")) return KindOf(*value);
  if (const json::Value* values = schema.Find("enum"); values != nullptr && values->is_array()) {
    for (const json::Value& value : values->as_array()) kinds |= KindOf(value);
    return kinds;
  }
  const json::Value* type = schema.Find("type");
  if (type == nullptr) return kAll;
  if (!type->is_array()) return KindNamed(*type);
  for (const json::Value& one : type->as_array()) kinds |= KindNamed(one);
  return kinds;
}

}  // namespace

std::optional<BoundedGrammar> TakeBoundsOut(std::string_view ebnf, bool may_overlap) {
  if (ebnf.find(kClass) == std::string_view::npos) return std::nullopt;
  const auto ones = RulesOf(kOne, ebnf), ones_at_most = RulesOf(kOneAtMost, ebnf);
  if (ebnf.find(fmt::format("{} ::= ", kString)) == std::string_view::npos ||
      ebnf.find(kBounded) != std::string_view::npos)
    may_overlap = true;

  BoundedGrammar changed;
  // Offsets in changed.ebnf from which bounds were removed.
  std::vector<std::pair<size_t, StringBounds>> places;
  std::string rules;
  std::set<std::string> added;
  for (size_t i = 0; i < ebnf.size();) {
    const std::string_view text = ebnf.substr(i);
    const size_t length = LengthOfName(text);
    const std::string_view name = text.substr(0, length);
    const std::string_view rest = text.substr(length);
    std::optional<Repetition> repetition;
    if (length == 0 && text.starts_with(kClass)) {
      repetition = {.least = 1, .most = 1, .length = kClass.size()};
    } else if (ones_at_most.contains(name)) {
      repetition = {.least = 0, .most = 1};
    } else if (ones.contains(name)) {
      repetition = ReadRepetition(rest);
    }
    const bool is_string = repetition && changed.ebnf.ends_with(kOpeningQuote) &&
                           rest.substr(repetition->length).starts_with(kClosingQuote);
    if (is_string && !may_overlap) {
      places.push_back({changed.ebnf.size(),
                        {repetition->least,
                         repetition->most < 0 ? StringBounds::kUnbounded : repetition->most}});
      i += length + repetition->length + kClosingQuote.size();
    } else if (length > 0 && is_string && repetition->most > kFewPositions &&
               repetition->least <= kMostCountedLeast) {
      changed.ebnf += CountedRule(name, *repetition, added, rules);
      i += length + repetition->length;
    } else if (length > 0) {
      changed.ebnf += name;
      i += length;
    } else {
      const std::string_view literal = text.substr(0, LengthOfLiteral(text));
      AppendLiteral(changed.ebnf, literal == kClass ? kJsonClass : literal);
      i += literal.size();
    }
  }
  const auto is_looser = [](const StringBounds& a, const StringBounds& b) {
    return a.most != b.most ? a.most > b.most : a.least < b.least;
  };
  for (const auto& [place, bounds] : places) changed.bounds.push_back(bounds);
  std::ranges::sort(changed.bounds, is_looser);
  const auto last = std::ranges::unique(changed.bounds);
  changed.bounds.erase(last.begin(), last.end());
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    const auto found = std::ranges::lower_bound(changed.bounds, place->second, is_looser);
    changed.ebnf.insert(place->first,
                        fmt::format("{}{}", kBounded, found - changed.bounds.begin() + 1));
  }
  for (size_t number = 1; number <= changed.bounds.size(); ++number)
    rules += fmt::format("{0}{1}[temperature={1}] ::= (({2}))\n", kBounded, number, kString);
  if (!changed.ebnf.ends_with('\n')) changed.ebnf += '\n';
  changed.ebnf += rules;
  return changed;
}

bool MayOverlap(const json::Value& schema) {
  if (schema.is_array()) return std::ranges::any_of(schema.as_array(), MayOverlap);
  if (!schema.is_object()) return false;
  for (const auto& [key, value] : schema.as_object()) {
    if (key == "patternProperties" || key == "propertyNames" || key == "if") return true;
    if (value.is_array() && (key == "anyOf" || key == "oneOf" || key == "allOf")) {
      unsigned seen = kNone;
      for (const json::Value& branch : value.as_array()) {
        const unsigned kinds = KindsOf(branch);
        if ((seen & kinds) != 0) return true;
        seen |= kinds;
      }
    }
    if (MayOverlap(value)) return true;
  }
  return false;
}

}  // namespace sluice
