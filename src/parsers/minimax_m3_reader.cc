#include "parsers/minimax_m3_reader.h"

#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/json.h"

namespace sluice {
namespace {

constexpr std::string_view kTagMark = "]<]minimax[>[";
constexpr std::string_view kElementOpen = "]<]minimax[>[<";
constexpr int kMaxElementDepth = 100;  // lower than the limit of JSON parsers
const std::array<std::string, 1> kBlockMarks = {"]<]minimax[>[<tool_call>"};
const std::array<std::string, 1> kInvokeMarks = {"]<]minimax[>[<invoke name="};
const std::array<std::string, 1> kInvokeNameEnds = {">"};
const std::array<std::string, 1> kInvokeEnds = {"]<]minimax[>[</invoke>"};

struct Element {
  std::string_view name;
  std::string text;  // text outside the child elements
  std::vector<Element> children;
};

// Removes the first element from `text` and returns it; nullopt if it is incomplete.
std::optional<Element> TakeElement(std::string_view& text, int depth) {
  if (depth > kMaxElementDepth || !text.starts_with(kElementOpen)) return std::nullopt;
  text.remove_prefix(kElementOpen.size());
  const size_t name_end = text.find('>');
  if (name_end == std::string_view::npos) return std::nullopt;
  Element element;
  element.name = text.substr(0, name_end);
  if (element.name.starts_with('/') || AsciiTrim(element.name).empty()) return std::nullopt;
  text.remove_prefix(name_end + 1);
  const std::string close = std::string(kElementOpen) + "/" + std::string(element.name) + ">";
  for (;;) {
    const size_t mark = text.find(kTagMark);
    if (mark == std::string_view::npos) return std::nullopt;
    element.text += text.substr(0, mark);
    text.remove_prefix(mark);
    if (text.starts_with(close)) {
      text.remove_prefix(close.size());
      return element;
    }
    std::optional<Element> child = TakeElement(text, depth + 1);
    if (!child) return std::nullopt;
    element.children.push_back(*std::move(child));
  }
}

// The part of a schema, or one of its alternatives, that describes an object or a list.
struct Container {
  const json::Value* schema = nullptr;
  bool is_list = false;
};

bool AllowsType(const json::Value* type, std::string_view name) {
  if (type == nullptr) return false;
  if (type->is_string()) return type->as_string() == name;
  if (!type->is_array()) return false;
  for (const json::Value& one : type->as_array()) {
    if (one.is_string() && one.as_string() == name) return true;
  }
  return false;
}

Container ContainerOf(const json::Value* schema, int depth = 0) {
  if (schema == nullptr || !schema->is_object() || depth > kMaxElementDepth) return {};
  const json::Value* type = schema->Find("type");
  if (AllowsType(type, "array")) return {schema, true};
  if (AllowsType(type, "object")) return {schema, false};
  if (type == nullptr && schema->Find("items") != nullptr) return {schema, true};
  if (type == nullptr && (schema->Find("properties") || schema->Find("additionalProperties")))
    return {schema, false};
  for (const char* key : {"anyOf", "oneOf"}) {
    const json::Value* choices = schema->Find(key);
    if (choices == nullptr || !choices->is_array()) continue;
    for (const json::Value& choice : choices->as_array()) {
      if (const Container found = ContainerOf(&choice, depth + 1); found.schema != nullptr)
        return found;
    }
  }
  return {};
}

const json::Value* MemberOf(const json::Value* schema, std::string_view key) {
  return schema == nullptr ? nullptr : schema->Find(key);
}

std::string ValueOf(const Element& element, const json::Value* schema);

std::string ObjectOf(const std::vector<Element>& elements, std::string_view text,
                     const json::Value* schema) {
  const json::Value* properties = MemberOf(schema, "properties");
  const json::Value* others = MemberOf(schema, "additionalProperties");
  std::vector<std::pair<std::string_view, std::vector<std::string>>> members;
  std::unordered_map<std::string_view, size_t> places;
  for (const Element& element : elements) {
    const auto [place, is_new] = places.emplace(element.name, members.size());
    if (is_new) members.push_back({element.name, {}});
    const json::Value* own = MemberOf(properties, element.name);
    members[place->second].second.push_back(ValueOf(element, own == nullptr ? others : own));
  }
  // Text between elements, which the format does not have, is kept as an additional member that is
  // never a list.
  std::string text_name = "$text";
  if (!AsciiTrim(text).empty()) {
    while (places.contains(text_name)) text_name.insert(0, "$");
    std::string value;
    json::AppendString(value, text);
    members.push_back({text_name, {std::move(value)}});
  }
  std::string out = "{";
  for (const auto& [name, values] : members) {
    if (out.size() > 1) out += ", ";
    json::AppendString(out, name);
    out += values.size() > 1 ? ": [" : ": ";
    for (size_t i = 0; i < values.size(); ++i) out += (i > 0 ? ", " : "") + values[i];
    if (values.size() > 1) out += ']';
  }
  return out + "}";
}

std::string ValueOf(const Element& element, const json::Value* schema) {
  const Container container = ContainerOf(schema);
  if (element.children.empty()) {
    const ParameterTypes types = schema == nullptr ? ParameterTypes() : TypesOf(*schema);
    // Elements without content represent empty lists and objects.
    if (container.schema != nullptr && !types.string && AsciiTrim(element.text).empty())
      return container.is_list ? "[]" : "{}";
    return TypedValue(element.text, types, /*scalars_only=*/false);
  }
  if (!container.is_list) return ObjectOf(element.children, element.text, container.schema);
  const json::Value* const items = container.schema->Find("items");
  std::string out = "[";
  for (const Element& child : element.children) {
    if (out.size() > 1) out += ", ";
    out += ValueOf(child, items);
  }
  if (!AsciiTrim(element.text).empty())
    out += ", " + ValueOf({.name = {}, .text = element.text, .children = {}}, items);
  return out + "]";
}

}  // namespace

std::string MinimaxArguments(std::string_view body, const json::Value* schema) {
  std::vector<Element> elements;
  for (;;) {
    body.remove_prefix(std::min(body.size(), body.find_first_not_of(" \t\r\n")));
    std::optional<Element> element = TakeElement(body, 0);
    if (!element) break;
    elements.push_back(*std::move(element));
  }
  // Uses only the declared properties of the parameters. Other arguments are strings.
  json::Value known{json::Value::Object{}};
  if (const json::Value* properties = MemberOf(schema, "properties"))
    known.Set("properties", *properties);
  return ObjectOf(elements, "", &known);
}

bool MinimaxM3Reader::ReadName(TextInput& input, ParserOutput& output) {
  const int found = input.PassUntil(kInvokeNameEnds, name_);
  if (name_.size() > kMaxHeldBytes) name_.resize(kMaxHeldBytes);
  if (found < 0) return false;
  // The name may be in double quotes, single quotes or unquoted.
  std::string_view name = AsciiTrim(name_);
  if (name.size() > 1 && (name.front() == '"' || name.front() == '\'') &&
      name.back() == name.front())
    name = name.substr(1, name.size() - 2);
  name_ = std::string(AsciiTrim(name));
  state_ = name_.empty() ? State::kBlock : State::kBody;
  if (!name_.empty()) output.BeginCall(name_);
  body_.clear();
  return true;
}

bool MinimaxM3Reader::ReadBody(TextInput& input, ParserOutput& output) {
  const int found = input.PassUntil(kInvokeEnds, body_);
  if (body_.size() > kMaxHeldBytes) body_.resize(kMaxHeldBytes);
  if (found == TextInput::kMore) return false;
  output.Arguments(MinimaxArguments(body_, types_->SchemaOf(name_)));
  state_ = State::kBlock;
  return found >= 0;
}

void MinimaxM3Reader::Read(TextInput& input, ParserOutput& output) {
  for (;;) {
    std::string passed;
    switch (state_) {
      case State::kText: {
        const int found = input.PassUntil(kBlockMarks, passed);
        output.Content(passed);
        if (found < 0) return;
        state_ = State::kBlock;
        break;
      }
      case State::kBlock:
        if (input.PassUntil(kInvokeMarks, passed) < 0) return;
        name_.clear();
        state_ = State::kName;
        break;
      case State::kName:
        if (!ReadName(input, output)) return;
        break;
      case State::kBody:
        if (!ReadBody(input, output)) return;
        break;
    }
  }
}

}  // namespace sluice
