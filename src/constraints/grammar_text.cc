#include "constraints/grammar_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "constraints/grammar_rules.h"

namespace sluice {
namespace {

// A nested format is a value of an object, which may be in a list: two levels of JSON each.
constexpr int kMaxTagDepth = 2 * kMaxConstraintDepth;

tl::unexpected<Error> Wrong(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

void AppendGrammarString(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  out += '"';
}

// `rest` is a part of a regex that begins with a backslash or "(?". Returns the construct at its
// beginning if the engine would ignore it; "" if the engine supports it.
std::string_view UnknownInRegex(std::string_view rest) {
  const auto begins = [rest](std::string_view text) { return rest.starts_with(text); };
  if (begins("(?=") || begins("(?!") || begins("(?<=") || begins("(?<!")) return "look-around";
  if (begins("(?") && !begins("(?:") && !begins("(?<") && !begins("(?P<")) return "an inline flag";
  if (rest.size() < 2 || rest[0] != '\\') return "";
  const char next = rest[1];
  if (next >= '1' && next <= '9') return "a back-reference";
  if (next == 'k') return "a back-reference";
  if (next == 'b' || next == 'B') return "a word boundary";
  if (next == 'p' || next == 'P') return "a Unicode class";
  if (next == 'A' || next == 'z' || next == 'Z' || next == 'G') return "an anchor";
  return "";
}

Status CheckRegex(std::string_view regex) {
  int depth = 0;
  bool in_class = false;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\' || (c == '(' && !in_class)) {
      const std::string_view unknown = UnknownInRegex(regex.substr(i));
      if (!unknown.empty() && !(in_class && regex[i + 1] == 'b')) {
        return Wrong(fmt::format("the regex has {} at character {}, which is not supported: {}",
                                 unknown, i, regex.substr(i, 20)));
      }
    }
    if (c == '\\') {
      ++i;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
      // A ']' at the beginning of a class is literal.
      if (i + 1 < regex.size() && regex[i + 1] == '^') ++i;
      if (i + 1 < regex.size() && regex[i + 1] == ']') ++i;
    } else if (c == '(') {
      if (++depth > kMaxConstraintDepth) {
        return Wrong(fmt::format("the regex has more than {} nested groups", kMaxConstraintDepth));
      }
    } else if (c == ')') {
      --depth;
    }
  }
  return {};
}

Result<json::Value> TagOf(const json::Value& structure, size_t index) {
  const json::Value* begin = structure.Find("begin");
  const json::Value* end = structure.Find("end");
  const json::Value* schema = structure.Find("schema");
  if (begin == nullptr || !begin->is_string() || end == nullptr || !end->is_string() ||
      (schema != nullptr && !schema->is_object()))
    return Wrong(
        fmt::format("structures.{} must have `begin` and `end`, strings, and `schema`, an "
                    "object",
                    index));
  json::Value content(json::Value::Object{
      {"type", "json_schema"},
      {"json_schema", schema == nullptr ? json::Value(json::Value::Object{}) : *schema}});
  return json::Value(json::Value::Object{
      {"type", "tag"}, {"begin", *begin}, {"content", std::move(content)}, {"end", *end}});
}

// Checks grammars and regexes inside a structural tag. The engine checks the schemas inside a tag.
Status CheckTag(const json::Value& value, std::string_view place, int depth) {
  if (depth > kMaxTagDepth) {
    return Wrong(fmt::format("formats are nested more than {} deep", kMaxConstraintDepth));
  }
  if (value.is_array()) {
    for (const json::Value& part : value.as_array())
      RETURN_IF_ERROR(CheckTag(part, place, depth + 1));
  }
  if (!value.is_object()) return {};
  for (const auto& [name, part] : value.as_object()) {
    if (name == "json_schema") continue;
    if (part.is_string() && (name == "grammar" || name == "pattern")) {
      const Status good = CheckConstraintText(
          name == "grammar" ? ConstraintKind::kEbnf : ConstraintKind::kRegex, part.as_string());
      if (!good) return Wrong(fmt::format("`{}` in `{}`: {}", name, place, good.error().message));
    }
    RETURN_IF_ERROR(CheckTag(part, name, depth + 1));
  }
  return {};
}

}  // namespace

std::string ChoiceGrammar(std::span<const std::string> choices) {
  std::string grammar = "root ::= ";
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) grammar += " | ";
    AppendGrammarString(grammar, choices[i]);
  }
  return grammar;
}

bool IsLark(std::string_view grammar) {
  while (!grammar.empty()) {
    const size_t end = std::min(grammar.find('\n'), grammar.size());
    std::string_view line = grammar.substr(0, end);
    line = line.substr(0, std::min(line.find('#'), line.find("//")));
    if (line.find("::=") != std::string_view::npos) return false;
    grammar.remove_prefix(std::min(end + 1, grammar.size()));
  }
  return true;
}

Result<std::string> StructuralTagText(const json::Value& tag) {
  if (!tag.is_object()) return Wrong("it must be an object");
  const json::Value* structures = tag.Find("structures");
  if (structures == nullptr) {
    const json::Value* format = tag.Find("format");
    if (format == nullptr || !format->is_object()) return Wrong("`format` must be an object");
    return json::Write(
        json::Value(json::Value::Object{{"type", "structural_tag"}, {"format", *format}}));
  }
  const json::Value* triggers = tag.Find("triggers");
  if (!structures->is_array() || structures->as_array().empty())
    return Wrong("`structures` must be a list of at least one tag");
  if (triggers == nullptr || !triggers->is_array() || triggers->as_array().empty())
    return Wrong("`triggers` must be a list of at least one string");
  json::Value::Array tags;
  for (const json::Value& structure : structures->as_array()) {
    ASSIGN_OR_RETURN(json::Value converted, TagOf(structure, tags.size()));
    tags.push_back(std::move(converted));
  }
  json::Value format(json::Value::Object{
      {"type", "triggered_tags"}, {"triggers", *triggers}, {"tags", std::move(tags)}});
  return json::Write(
      json::Value(json::Value::Object{{"type", "structural_tag"}, {"format", std::move(format)}}));
}

Status CheckConstraintText(ConstraintKind kind, std::string_view text) {
  if (text.size() > kMaxConstraintBytes) {
    return Wrong(fmt::format("it has {} bytes, more than the {} that a constraint may have",
                             text.size(), kMaxConstraintBytes));
  }
  if (text.find('\0') != std::string_view::npos) return Wrong("it holds a NUL byte");
  if (kind == ConstraintKind::kRegex) return CheckRegex(text);
  if (kind == ConstraintKind::kEbnf || kind == ConstraintKind::kLark)
    return CheckGrammarRules(kind, text);
  if (kind == ConstraintKind::kStructuralTag) {
    ASSIGN_OR_RETURN(const json::Value tag, json::Parse(text));
    return CheckTag(tag, "format", 0);
  }
  return {};
}

}  // namespace sluice
