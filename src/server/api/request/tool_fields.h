// Which tools the model may call in a request, and whether it must. Every API reads its own JSON
// into ToolFields, and ConversationFields::tools into the chat API's list of tools; what follows
// for the answer is answer_parsing.h.
#pragma once

#include <string>

#include "base/json.h"
#include "server/api/common/api_error.h"
#include "server/api/common/field_reader.h"
#include "server/server_config.h"

namespace sluice {

enum class ToolChoice {
  kNone,      // there are no tools, or the model is not to call them: calls are text
  kAuto,      // the model decides
  kRequired,  // it calls at least one
  kNamed,     // it calls the one of ToolFields::name, once
};

struct ToolFields {
  ToolChoice choice = ToolChoice::kNone;
  std::string name;
  bool parallel = true;  // false: an answer has one call at most
};

// Checks what vLLM checks of `tools` and `tool_choice` of a chat request before it reads types.
// REQUIRES: `body` is an object.
ApiStatus CheckToolChoice(const json::Value& body);

// A choice of type allowed_tools, {"mode": "auto" or "required", "tools": [...]}, which may be in
// its member "allowed_tools"; null for other choices.
const json::Value* AllowedTools(const json::Value* choice);
// Whether such a choice names tools that are there. `tools`: in the shape of a chat request.
ApiStatus CheckAllowedTools(const json::Value& allowed, const json::Value& tools);
// Leaves of `tools` those that the choice allows: the model knows of no others. Other choices allow
// all. REQUIRES: CheckAllowedTools has passed.
void KeepAllowedTools(const json::Value* choice, json::Value& tools);

// Reads `tool_choice` and `parallel_tool_calls`. `name_of`: the function that a choice, which is an
// object, names. REQUIRES: the choice has been checked.
ToolFields ReadToolFields(FieldReader& reader, bool has_tools,
                          std::string (*name_of)(const json::Value& choice));
// Reads the tool fields of a chat request. REQUIRES: CheckToolChoice has passed.
ToolFields ReadChatToolFields(FieldReader& reader);

// 400 if neither the model's template nor a parser supports tools, or if the server was started
// without the options that they need.
ApiStatus CheckToolSupport(const ToolFields& tools, const ServerConfig& config,
                           bool model_takes_tools);

}  // namespace sluice
