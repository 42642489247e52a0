// The conversation of a chat request or of /tokenize, and the prompt that it is rendered into.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "server/api/api_error.h"
#include "server/api/field_reader.h"
#include "server/api/model_context.h"

namespace sluice {

struct ConversationFields {
  json::Value messages;              // a list of objects, each with a role
  json::Value tools;                 // null: none
  json::Value documents;             // null: none
  json::Value chat_template_kwargs;  // an object or null
  std::optional<std::string> chat_template;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = false;
};

// Reads and checks `messages` and the fields that are rendered with it.
ConversationFields ReadConversation(FieldReader& reader);

// Checks one message; `index` is its place in the list.
void CheckMessage(FieldReader& reader, const json::Value& message, size_t index);

// Renders `messages` with all other fields of `conversation`. Errors: 400 if there is no template,
// if the template raises, or if a message holds content other than text.
ApiResult<std::string> RenderConversation(const ConversationFields& conversation,
                                          const json::Value& messages, const ModelContext& model);

}  // namespace sluice
