// The tools of /v1/responses, whose functions are flat, as the tools of a chat.
#pragma once

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

// The functions of `tools` in the shape of a chat request; null where there are none. Tools of
// other types, which clients run themselves (local_shell, custom, …), are not shown to the model.
json::Value ChatTools(const json::Value* tools);
// Which of `chat_tools` the model may call. REQUIRES: RefuseResponseTools() has passed.
ToolFields ReadResponseTools(FieldReader& reader, const json::Value& chat_tools);

// `tools` as a response repeats them, with the members that the request left out.
json::Value ShownTools(const json::Value* tools);

}  // namespace sluice
