// Converts the tools of /v1/responses, whose functions are flat, to tools of a chat request.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"
#include "server/api/common/api_error.h"
#include "server/api/common/field_reader.h"
#include "server/api/request/tool_fields.h"
#include "server/server_config.h"

namespace sluice {

// Checks the types of `tools` and `tool_choice`. Errors name the locations "tools.0…" and
// "tool_choice".
void CheckResponseTools(FieldReader& reader);

// 400 for a tool that only OpenAI's servers can run, and for a tool_choice that matches no tool.
// REQUIRES: CheckResponseTools() found no error; `body` is an object.
ApiStatus RefuseResponseTools(const json::Value& body, const ServerConfig& config);

// Returns the name that the prompt shows for a function in the namespace `space`, which may be "".
std::string FlatName(std::string_view space, std::string_view name);

// A function's name in the API.
struct NamespacedTool {
  std::string space;  // "" if there is none
  std::string name;
};
// Keyed by FlatName().
using NamespacedTools = std::unordered_map<std::string, NamespacedTool>;
// Returns the namespaced functions of `tools`, except those whose flat name equals the name of an
// earlier function.
NamespacedTools ToolsInNamespaces(const json::Value* tools);

// Returns the functions of `tools`, including namespaced ones, in the shape of a chat request; null
// if there are none. Tools of other types, which clients run themselves (local_shell, custom, …),
// are not shown to the model.
json::Value ChatTools(const json::Value* tools);
// Determines which of `chat_tools` the model may call. REQUIRES: RefuseResponseTools() has passed.
ToolFields ReadResponseTools(FieldReader& reader, const json::Value& chat_tools);

// Returns `tools` as a response repeats them, including members that the request omitted.
json::Value ShownTools(const json::Value* tools);

}  // namespace sluice
