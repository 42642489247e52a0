// The tools that the model may call in a request, and whether it must call one. Every API converts
// its tool choice to ToolFields, and its tools to a chat request's list in
// ConversationFields::tools. AnswerParsing (answer_parsing.h) applies the choice to the answer.
#pragma once

#include <string>

#include "base/json.h"
#include "server/api/common/api_error.h"
#include "server/api/common/field_reader.h"
#include "server/server_config.h"

namespace sluice {

enum class ToolChoice {
  kNone,      // there are no tools, or the model must not call them; calls are treated as text
  kAuto,      // the model decides
  kRequired,  // the model must call at least one
  kNamed,     // the model must call ToolFields::name once
};

struct ToolFields {
  ToolChoice choice = ToolChoice::kNone;
  std::string name;
  bool parallel = true;  // false: an answer contains at most one call
};

// Checks what vLLM checks in a chat request's `tools` and `tool_choice` before their types.
// REQUIRES: `body` is an object.
ApiStatus CheckToolChoice(const json::Value& body);

// Returns a choice of type allowed_tools, {"mode": "auto" or "required", "tools": [...]}, which may
// be nested in a member "allowed_tools"; null for other choices.
const json::Value* AllowedTools(const json::Value* choice);
// Checks that a choice of type allowed_tools names existing tools. `tools`: in the shape of a chat
// request.
ApiStatus CheckAllowedTools(const json::Value& allowed, const json::Value& tools);
// Removes the tools that the choice does not allow, so that the model does not see them. Other
// choices allow all. REQUIRES: CheckAllowedTools has passed.
void KeepAllowedTools(const json::Value* choice, json::Value& tools);

// Reads `tool_choice` and `parallel_tool_calls`. `name_of`: returns the function that a choice
// names if the choice is an object. REQUIRES: the choice has been checked.
ToolFields ReadToolFields(FieldReader& reader, bool has_tools,
                          std::string (*name_of)(const json::Value& choice));
// Reads the tool fields of a chat request. REQUIRES: CheckToolChoice has passed.
ToolFields ReadChatToolFields(FieldReader& reader);

// 400 if the model's template and the parsers do not support tools, or if the server was started
// without the options that tools need.
ApiStatus CheckToolSupport(const ToolFields& tools, const ServerConfig& config,
                           bool model_takes_tools);

}  // namespace sluice
