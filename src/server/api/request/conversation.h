// The conversation of a chat request or of /tokenize, and the prompt into which it is rendered.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "server/api/common/api_error.h"
#include "server/api/common/field_reader.h"
#include "server/api/context/route.h"
#include "server/api/request/prompt.h"
#include "server/processed_image_cache.h"

namespace sluice {

struct ConversationFields {
  json::Value messages;              // a list of objects, each with a role
  json::Value tools;                 // null: no tools
  json::Value documents;             // null: no documents
  json::Value chat_template_kwargs;  // an object or null
  std::optional<std::string> chat_template;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = false;
  // Name of a request field that would change how images are read; "": none. A request with images
  // may not have this field, because only options may change that.
  std::string image_settings;
  // Whether parts have a member kPlaceOfPart, which states the part's place in the original request
  // of another API.
  bool own_places = false;
};

// A conversation rendered as the text of a prompt.
struct RenderedConversation {
  std::string text;  // includes the expanded placeholders of images
  std::vector<ImageParts> images;
};

// Reads and checks `messages` and the fields that the chat template receives with them.
ConversationFields ReadConversation(FieldReader& reader);

// Reads the fields with settings for images, which a request with images may not have.
void ReadImageSettings(FieldReader& reader, ConversationFields& conversation);

// Checks one message. `index`: its position in the list.
void CheckMessage(FieldReader& reader, const json::Value& message, size_t index);

// Returns the arguments of a call in the history: any text that a model wrote, "" if absent or
// null; nullopt if they are something else. How the chat template handles them: see
// RenderChatPrompt.
std::optional<std::string> ReplayedArguments(const json::Value* given);

// Renders `messages` with all other fields of `conversation` for the model of `call`. Ends early
// when the client disconnects or the server shuts down. Errors: 400 if there is no template, if the
// template fails or reaches a limit, or if a message contains anything but text and images; 503 at
// shutdown; the errors of ReadImages.
ApiResult<RenderedConversation> RenderConversation(const RouteCall& call,
                                                   const ConversationFields& conversation,
                                                   const json::Value& messages);

// Tokenizes the conversation as PromptFromText does, and finds its images among the tokens.
ApiResult<Prompt> PromptFromConversation(RenderedConversation conversation, bool add_special_tokens,
                                         const SamplingFields& fields, const ModelContext& model);

}  // namespace sluice
