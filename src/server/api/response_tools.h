// The tools of /v1/responses, whose functions are flat, as the tools of a chat.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"
#include "server/api/api_error.h"
#include "server/api/field_reader.h"
#include "server/api/tool_fields.h"
#include "server/server_config.h"

namespace sluice {

// Checks the types of `tools` and `tool_choice`; errors are noted at "tools.0…" and "tool_choice".
void CheckResponseTools(FieldReader& reader);

// 400 for a tool that only OpenAI's servers can run, and for a choice that no tool fulfils.
// REQUIRES: CheckResponseTools() found no error; `body` is an object.
ApiStatus RefuseResponseTools(const json::Value& body, const ServerConfig& config);

// The name by which the model knows a function of a namespace; `space` empty: of none.
std::string FlatName(std::string_view space, std::string_view name);

// A function as the client knows it.
struct NamespacedTool {
  std::string space;  // "" for none
  std::string name;
};
// By the names that the model knows.
using NamespacedTools = std::unordered_map<std::string, NamespacedTool>;
// The functions of `tools` that are in namespaces, but those whose flat name is that of a function
// before them.
NamespacedTools ToolsInNamespaces(const json::Value* tools);

// The functions of `tools`, also those in namespaces, in the shape of a chat request; null where
// there are none. Tools of other types, which clients run themselves (local_shell, custom, …), are
// not shown to the model.
json::Value ChatTools(const json::Value* tools);
// Which of `chat_tools` the model may call. REQUIRES: RefuseResponseTools() has passed.
ToolFields ReadResponseTools(FieldReader& reader, const json::Value& chat_tools);

// `tools` as a response repeats them, with the members that the request left out.
json::Value ShownTools(const json::Value* tools);

}  // namespace sluice
