#include "server/api/request/response_tools.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace sluice {
namespace {

struct ToolKind {
  std::string_view type;
  // The members of a tool in a response, in order; absent ones are null.
  std::vector<std::string_view> members = {};
  bool needs_openai = false;
};

const std::vector<ToolKind>& ToolKinds() {
  static const std::vector<std::string_view> web_search = {"type", "search_content_types",
                                                           "search_context_size", "user_location"};
  static const std::vector<ToolKind> kinds = {
      {"function",
       {"name", "parameters", "strict", "type", "allowed_callers", "async", "defer_loading",
        "description", "output_schema"}},
      {"web_search_preview", web_search},
      {"web_search_preview_2025_03_11", web_search},
      {"web_search"},
      {"web_search_2025_08_26"},
      {"local_shell"},
      {"shell"},
      {"custom"},
      {"apply_patch"},
      {"namespace"},
      {"tool_search"},
      {"image_generation"},
      {"programmatic_tool_calling"},
      {"mcp", {}, true},
      {"code_interpreter", {}, true},
      {"file_search", {}, true},
      {"computer", {}, true},
      {"computer_use_preview", {}, true},
  };
  return kinds;
}

const ToolKind* FindKind(const json::Value& tool) {
  const auto found = std::ranges::find(ToolKinds(), TextAt(tool, "type"), &ToolKind::type);
  return found == ToolKinds().end() ? nullptr : &*found;
}

bool IsFunction(const json::Value& tool) {
  return TextAt(tool, "type") == "function";
}

void CheckFunction(FieldReader& reader, const json::Value& tool, const std::string& place) {
  const json::Value* parameters = tool.Find("parameters");
  if (parameters != nullptr && !parameters->is_null() && !parameters->is_object())
    reader.Add(place + ".parameters", "a JSON schema", *parameters);
  const json::Value* description = tool.Find("description");
  if (description != nullptr && !description->is_null() && !description->is_string())
    reader.Add(place + ".description", "a string", *description);
  const json::Value* strict = tool.Find("strict");
  if (strict != nullptr && !strict->is_null() && !strict->is_bool())
    reader.Add(place + ".strict", "true or false", *strict);
}

void CheckToolName(FieldReader& reader, const json::Value& tool, const std::string& place) {
  const json::Value* name = tool.Find("name");
  if (name == nullptr) {
    reader.AddMissing(place + ".name");
  } else if (!name->is_string()) {
    reader.Add(place + ".name", "a string", *name);
  }
}

// Checks the tools in a namespace: functions, or custom tools, which are not shown to the model.
void CheckNamespace(FieldReader& reader, const json::Value& tool, const std::string& place) {
  CheckToolName(reader, tool, place);
  const json::Value* tools = tool.Find("tools");
  if (tools == nullptr) return reader.AddMissing(place + ".tools");
  if (!tools->is_array()) return reader.Add(place + ".tools", "a list of tools", *tools);
  for (size_t i = 0; i < tools->as_array().size(); ++i) {
    const json::Value& inner = tools->as_array()[i];
    const std::string at = fmt::format("{}.tools.{}", place, i);
    if (!IsFunction(inner) && TextAt(inner, "type") != "custom") {
      const json::Value* type = inner.Find("type");
      reader.Add(at + ".type", R"("function" or "custom")", type == nullptr ? inner : *type);
      continue;
    }
    CheckToolName(reader, inner, at);
    if (IsFunction(inner)) CheckFunction(reader, inner, at);
  }
}

// As in vLLM, which tries one type of tool after another, errors name the members that a function
// lacks.
void CheckTool(FieldReader& reader, const json::Value& tool, const std::string& place) {
  if (!tool.is_object()) return reader.Add(place, "an object", tool);
  const ToolKind* kind = FindKind(tool);
  const std::string function = place + ".FunctionTool";
  if (kind == nullptr || IsFunction(tool)) CheckToolName(reader, tool, function);
  if (kind == nullptr) {
    const json::Value* type = tool.Find("type");
    if (type == nullptr) return reader.AddMissing(function + ".type");
    return reader.Add(function + ".type", R"("function", "custom", "web_search", …)", *type);
  }
  if (IsFunction(tool)) return CheckFunction(reader, tool, function);
  if (kind->type == "namespace") CheckNamespace(reader, tool, place + ".NamespaceTool");
}

const json::Value::Array& ToolsOf(const json::Value* tools) {
  static const json::Value::Array none;
  return tools == nullptr || tools->is_null() ? none : tools->as_array();
}

// Calls `call` with every function and the name of its namespace ("": none).
void ForEachFunction(
    const json::Value* tools,
    const std::function<void(const std::string& space, const json::Value& function)>& call) {
  for (const json::Value& tool : ToolsOf(tools)) {
    if (IsFunction(tool)) call("", tool);
    if (TextAt(tool, "type") != "namespace") continue;
    for (const json::Value& inner : tool.Find("tools")->as_array()) {
      if (IsFunction(inner)) call(TextAt(tool, "name"), inner);
    }
  }
}

// Returns the function that a choice names, under the name that the model sees.
std::string ChosenName(const json::Value& choice) {
  return FlatName(TextAt(choice, "namespace"), TextAt(choice, "name"));
}

}  // namespace

void CheckResponseTools(FieldReader& reader) {
  const json::Value::Array* tools = nullptr;
  if (reader.Read("tools", tools, {.nullable = true})) {
    for (size_t i = 0; i < tools->size(); ++i)
      CheckTool(reader, (*tools)[i], fmt::format("tools.{}", i));
  }
  const json::Value* choice = reader.Raw("tool_choice");
  if (choice == nullptr || (choice->is_object() && !TextAt(*choice, "type").empty())) return;
  if (choice->is_string()) {
    for (const char* known : {"none", "auto", "required"}) {
      if (choice->as_string() == known) return;
    }
  }
  reader.Add("tool_choice", R"("none", "auto", "required" or an object with a type)", *choice);
}

ApiStatus RefuseResponseTools(const json::Value& body, const ServerConfig& config) {
  const json::Value::Array& tools = ToolsOf(body.Find("tools"));
  // vLLM accepts these tools but never calls them.
  if (config.dialect != ApiDialect::kVllm) {
    for (size_t i = 0; i < tools.size(); ++i) {
      const ToolKind* kind = FindKind(tools[i]);
      if (!kind->needs_openai) continue;
      return BadParameter(fmt::format("tools of type {} are not supported: only OpenAI's servers "
                                      "run them; omit it, or offer a function",
                                      kind->type),
                          fmt::format("tools.{}", i));
    }
  }
  const json::Value* choice = body.Find("tool_choice");
  if (choice == nullptr || choice->is_null()) return {};
  if (choice->is_string()) {
    if (choice->as_string() == "required" && tools.empty()) {
      return BadParameter("Tool choice 'required' must be specified with 'tools' parameter.",
                          "tool_choice");
    }
    return {};
  }
  if (const json::Value* allowed = AllowedTools(choice))
    return CheckAllowedTools(*allowed, ChatTools(body.Find("tools")));
  if (!IsFunction(*choice)) {
    return BadParameter(fmt::format("a choice of type {} is not supported; name a function",
                                    Describe(*choice->Find("type"))),
                        "tool_choice");
  }
  const std::string name = ChosenName(*choice);
  bool is_known = false;
  ForEachFunction(body.Find("tools"), [&](const std::string& space, const json::Value& function) {
    is_known |= !name.empty() && FlatName(space, TextAt(function, "name")) == name;
  });
  if (is_known) return {};
  return BadParameter("Tool choice 'function' not found in 'tools' parameter.", "tool_choice");
}

// The separator is the same as in vLLM.
std::string FlatName(std::string_view space, std::string_view name) {
  return space.empty() ? std::string(name) : fmt::format("{}__{}", space, name);
}

NamespacedTools ToolsInNamespaces(const json::Value* tools) {
  NamespacedTools found;
  std::unordered_set<std::string> known;
  ForEachFunction(tools, [&](const std::string& space, const json::Value& function) {
    std::string name = TextAt(function, "name");
    std::string flat = FlatName(space, name);
    if (known.insert(flat).second && !space.empty())
      found.emplace(std::move(flat), NamespacedTool{space, std::move(name)});
  });
  return found;
}

json::Value ChatTools(const json::Value* tools) {
  json::Value::Array functions;
  ForEachFunction(tools, [&](const std::string& space, const json::Value& tool) {
    json::Value function{json::Value::Object{}};
    function.Set("name", FlatName(space, TextAt(tool, "name")));
    for (const char* name : {"description", "parameters", "strict"}) {
      const json::Value* value = tool.Find(name);
      if (value != nullptr && !value->is_null()) function.Set(name, *value);
    }
    functions.emplace_back(
        json::Value::Object{{"type", "function"}, {"function", std::move(function)}});
  });
  return functions.empty() ? json::Value() : json::Value(std::move(functions));
}

ToolFields ReadResponseTools(FieldReader& reader, const json::Value& chat_tools) {
  return ReadToolFields(reader, !chat_tools.is_null(), ChosenName);
}

json::Value ShownTools(const json::Value* tools) {
  json::Value::Array shown;
  for (const json::Value& tool : ToolsOf(tools)) {
    const ToolKind* kind = FindKind(tool);
    json::Value copy{json::Value::Object{}};
    for (const std::string_view member : kind->members) {
      const json::Value* value = tool.Find(member);
      copy.as_object().emplace_back(member, value == nullptr ? json::Value() : *value);
    }
    shown.push_back(kind->members.empty() ? tool : std::move(copy));
  }
  return json::Value(std::move(shown));
}

}  // namespace sluice
