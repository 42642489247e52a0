#include "parsers/tool_types.h"

#include "base/ascii.h"
#include "parsers/python_literal.h"

namespace sluice {
namespace {

constexpr int kMaxSchemaDepth = 16;

void AddTypeName(std::string_view name, ParameterTypes& types) {
  if (name == "string") types.string = true;
  if (name == "integer") types.integer = true;
  if (name == "number") types.number = true;
  if (name == "boolean") types.boolean = true;
  if (name == "null") types.null = true;
  if (name == "object") types.object = true;
  if (name == "array") types.array = true;
}

void AddValueType(const json::Value& value, ParameterTypes& types) {
  types.string |= value.is_string();
  types.integer |= value.is_integer();
  types.number |= value.is_double();
  types.boolean |= value.is_bool();
  types.null |= value.is_null();
}

void AddTypes(const json::Value& schema, int depth, ParameterTypes& types) {
  if (depth > kMaxSchemaDepth) return;
  if (const json::Value* type = schema.Find("type")) {
    if (type->is_string()) AddTypeName(type->as_string(), types);
    if (type->is_array()) {
      for (const json::Value& one : type->as_array()) {
        if (one.is_string()) AddTypeName(one.as_string(), types);
      }
    }
    return;
  }
  if (const json::Value* values = schema.Find("enum"); values != nullptr && values->is_array()) {
    for (const json::Value& value : values->as_array()) AddValueType(value, types);
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const json::Value* parts = schema.Find(key);
    if (parts == nullptr || !parts->is_array()) continue;
    for (const json::Value& part : parts->as_array()) AddTypes(part, depth + 1, types);
  }
  if (schema.Find("properties") != nullptr) types.object = true;
  if (schema.Find("items") != nullptr) types.array = true;
}

}  // namespace

ParameterTypes TypesOf(const json::Value& schema) {
  ParameterTypes types;
  AddTypes(schema, 0, types);
  return types;
}

ToolTypes::ToolTypes(const json::Value& tools, bool keeps_schemas) {
  if (!tools.is_array()) return;
  for (const json::Value& tool : tools.as_array()) {
    const json::Value* function = tool.Find("function");
    if (function == nullptr) function = &tool;
    const json::Value* name = function->Find("name");
    if (name == nullptr || !name->is_string()) continue;
    Parameters& parameters = tools_[name->as_string()];
    const json::Value* schema = function->Find("parameters");
    if (keeps_schemas && schema != nullptr) schemas_[name->as_string()] = *schema;
    const json::Value* wanted = function->Find("strict");
    const bool strict = wanted != nullptr && wanted->is_bool() && wanted->as_bool();
    const json::Value* properties = schema == nullptr ? nullptr : schema->Find("properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, property] : properties->as_object()) {
      ParameterTypes& types = parameters[key];
      AddTypes(property, 0, types);
      types.is_choice =
          strict && (property.Find("enum") != nullptr || property.Find("const") != nullptr);
    }
  }
}

ParameterTypes ToolTypes::Find(std::string_view tool, std::string_view parameter) const {
  const auto found = tools_.find(tool);
  if (found == tools_.end()) return {};
  const auto types = found->second.find(parameter);
  return types == found->second.end() ? ParameterTypes() : types->second;
}

const json::Value* ToolTypes::SchemaOf(std::string_view tool) const {
  const auto found = schemas_.find(tool);
  return found == schemas_.end() ? nullptr : &found->second;
}

std::string TypedValue(std::string_view text, const ParameterTypes& types, bool scalars_only) {
  const std::string_view trimmed = AsciiTrim(text);
  std::string lower = trimmed.size() <= 5 ? AsciiLower(trimmed) : std::string();
  if (!types.unknown() && !types.only_string()) {
    if (lower == "null" && !scalars_only) return lower;
    if (types.boolean && (lower == "true" || lower == "false")) return lower;
    if (types.integer || types.number || types.object || types.array) {
      const auto value = json::Parse(trimmed);
      const bool fits = value && ((value->is_number() && (types.integer || types.number)) ||
                                  (!scalars_only && value->is_object() && types.object) ||
                                  (!scalars_only && value->is_array() && types.array));
      if (fits) return std::string(trimmed);
    }
    if (!scalars_only && (types.object || types.array) && !trimmed.empty() &&
        (trimmed.front() == '{' || trimmed.front() == '[' || trimmed.front() == '(')) {
      if (auto literal = PythonLiteralToJson(trimmed)) return *std::move(literal);
    }
  }
  std::string out;
  json::AppendString(out, text);
  return out;
}

void AppendEscaped(std::string& out, std::string_view text) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += kHex[static_cast<unsigned char>(c) >> 4];
          out += kHex[static_cast<unsigned char>(c) & 15];
        } else {
          out += c;
        }
    }
  }
}

}  // namespace sluice
