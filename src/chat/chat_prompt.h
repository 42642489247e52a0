// Renders the `messages` of a chat request into the text of its prompt.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "chat/chat_template.h"

namespace sluice {

struct ChatPromptOptions {
  json::Value tools;      // The request's array, or null, which the template sees as None.
  json::Value documents;  // Like tools.
  // An object or null, at most 16 KiB. A name is ignored if the template does not read it, or if it
  // is the name of a request field or a special token.
  json::Value chat_template_kwargs;
  bool add_generation_prompt = true;
  // Makes the prompt end with the text of the last message, so that the model continues it.
  bool continue_final_message = false;
  // The format in which message contents are passed to the template; absent: the format that the
  // template reads.
  std::optional<ChatTemplate::ContentFormat> content_format;
  // The text that replaces each image if contents are strings; empty: images are refused. A
  // template that reads parts receives {"type": "image"}.
  std::string image_text;
  RenderOptions render;
};

// Collects bos_token, eos_token, pad_token, unk_token, ... and additional special tokens as an
// object of strings. tokenizer_config.json takes precedence over special_tokens_map.json; either
// may be null.
json::Value SpecialTokens(const json::Value& tokenizer_config,
                          const json::Value& special_tokens_map = {});

// Converts messages to the form that templates expect. Contents become strings joined with "\n"
// (kString) or lists of parts (kParts); null becomes empty. Arguments of tool calls become objects,
// or text if they are not a JSON object. If a message has `reasoning` or `reasoning_content`, both
// are set. kInvalidArgument names the message that is not an object, lacks a role, or has a part of
// a type other than text or, with `image_text`, an image.
Result<json::Value> NormalizeMessages(const json::Value& messages,
                                      ChatTemplate::ContentFormat format,
                                      const std::string& image_text = "");

// kInvalidArgument if chat_template_kwargs are too large or nested too deeply. RenderChatPrompt
// makes the same check.
Status CheckTemplateKwargs(const json::Value& kwargs);

// Renders the request's `messages`. A template that reads message.thinking (gpt-oss) also receives
// the reasoning in that key. If a template fails and the messages contain tool calls, it is
// rendered again with other forms of their arguments: first {"arguments": text} for arguments that
// are not an object, then all arguments as text. Tokenize the result without adding special tokens.
// kInvalidArgument: invalid messages, or an error of ChatTemplate::Render.
Result<std::string> RenderChatPrompt(const ChatTemplate& chat_template,
                                     const json::Value& special_tokens, const json::Value& messages,
                                     const ChatPromptOptions& options = {});

}  // namespace sluice
