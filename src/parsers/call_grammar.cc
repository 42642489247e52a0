#include "parsers/call_grammar.h"

#include <utility>

#include "parsers/tool_types.h"

namespace sluice {
namespace {

using Object = json::Value::Object;

json::Value Const(std::string_view text) {
  return json::Value(Object{{"type", "const_string"}, {"value", text}});
}

json::Value Sequence(json::Value::Array elements) {
  return json::Value(Object{{"type", "sequence"}, {"elements", std::move(elements)}});
}

json::Value Tag(std::string begin, json::Value content, std::string_view end) {
  return json::Value(Object{
      {"type", "tag"}, {"begin", std::move(begin)}, {"content", std::move(content)}, {"end", end}});
}

json::Value ArgumentsOf(const CallGrammar& grammar, const CallableTool& tool) {
  json::Value schema(Object{{"type", "json_schema"}, {"json_schema", tool.schema}});
  if (grammar.style != "json") schema.Set("style", grammar.style);
  return schema;
}

json::Value CallOf(const CallGrammar& grammar, const CallableTool& tool) {
  std::string begin(grammar.begin);
  // The name is inside a JSON string, so it is escaped.
  if (begin.ends_with('"') && grammar.style == "json") {
    AppendEscaped(begin, tool.name);
  } else {
    begin += tool.name;
  }
  json::Value arguments = ArgumentsOf(grammar, tool);
  if (grammar.number_end.empty())
    return Tag(begin + std::string(grammar.arguments), std::move(arguments), grammar.end);
  json::Value number(Object{{"type", "regex"}, {"pattern", "\\d+"}});
  return Tag(begin + ":",
             Sequence({std::move(number), Const(grammar.number_end), std::move(arguments)}),
             grammar.end);
}

// The grammar of a section with as many calls as `count` allows.
json::Value Calls(const CallGrammar& grammar, json::Value::Array calls, CallCount count,
                  bool parallel) {
  if (count == CallCount::kOne) return std::move(calls.front());
  return json::Value(Object{{"type", "tags_with_separator"},
                            {"tags", std::move(calls)},
                            {"separator", grammar.separator},
                            {"at_least_one", true},
                            {"stop_after_first", !parallel}});
}

json::Value Triggered(const CallGrammar& grammar, json::Value::Array tags, CallCount count,
                      bool parallel) {
  return json::Value(Object{{"type", "triggered_tags"},
                            {"triggers", json::Value::Array{grammar.trigger}},
                            {"tags", std::move(tags)},
                            {"at_least_one", count == CallCount::kAtLeastOne},
                            {"stop_after_first", !parallel}});
}

json::Value FormatOf(const CallGrammar& grammar, json::Value::Array calls, CallCount count,
                     bool parallel) {
  if (grammar.section_begin.empty()) {
    if (count == CallCount::kOne) return std::move(calls.front());
    return Triggered(grammar, std::move(calls), count, parallel);
  }
  json::Value inside = Calls(grammar, std::move(calls), count, parallel);
  if (count == CallCount::kAny) {
    json::Value section =
        Tag(std::string(grammar.section_begin), std::move(inside), grammar.section_end);
    return Triggered(grammar, {std::move(section)}, count, parallel);
  }
  return Sequence({Const(std::string(grammar.opening) + std::string(grammar.section_begin)),
                   std::move(inside), Const(grammar.section_end)});
}

json::Value AfterAnyThought(const CallGrammar& grammar, json::Value calls) {
  json::Value thought = Tag(std::string(grammar.thought_begin),
                            json::Value(Object{{"type", "any_text"}}), grammar.thought_end);
  json::Value optional(Object{{"type", "optional"}, {"content", std::move(thought)}});
  return Sequence({std::move(optional), std::move(calls)});
}

// Copies `schema` with its local references changed to point below `prefix`.
json::Value Rebased(const json::Value& schema, const std::string& prefix) {
  if (schema.is_array()) {
    json::Value::Array list;
    for (const json::Value& element : schema.as_array()) list.push_back(Rebased(element, prefix));
    return json::Value(std::move(list));
  }
  if (!schema.is_object()) return schema;
  json::Value result{Object{}};
  for (const auto& [key, value] : schema.as_object()) {
    const bool refers = key == "$ref" && value.is_string() && value.as_string().starts_with('#');
    result.as_object().emplace_back(
        key, refers ? json::Value(prefix + value.as_string().substr(1)) : Rebased(value, prefix));
  }
  return result;
}

}  // namespace

json::Value CallTag(const CallGrammar& grammar, std::span<const CallableTool> tools,
                    CallCount count, bool parallel) {
  json::Value::Array calls;
  for (const CallableTool& tool : tools) calls.push_back(CallOf(grammar, tool));
  json::Value format = FormatOf(grammar, std::move(calls), count, parallel);
  if (count != CallCount::kAny && !grammar.thought_begin.empty())
    format = AfterAnyThought(grammar, std::move(format));
  return json::Value(Object{{"type", "structural_tag"}, {"format", std::move(format)}});
}

json::Value CallListSchema(std::span<const CallableTool> tools, bool parallel) {
  json::Value::Array calls;
  json::Value definitions{Object{}};
  for (const CallableTool& tool : tools) {
    const std::string key = "tool" + std::to_string(calls.size());
    const std::string place = "#/$defs/" + key;
    definitions.as_object().emplace_back(key, Rebased(tool.schema, place));
    json::Value name(Object{{"type", "string"}, {"enum", json::Value::Array{tool.name}}});
    json::Value parameters(Object{{"$ref", place}});
    calls.push_back(json::Value(
        Object{{"type", "object"},
               {"properties", Object{{"name", std::move(name)}, {"parameters", parameters}}},
               {"required", json::Value::Array{"name", "parameters"}}}));
  }
  json::Value schema(Object{{"type", "array"},
                            {"minItems", 1},
                            {"items", Object{{"anyOf", std::move(calls)}}},
                            {"$defs", std::move(definitions)}});
  if (!parallel) schema.Set("maxItems", 1);
  return schema;
}

}  // namespace sluice
