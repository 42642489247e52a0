// Renders the `messages` of a chat request into the text of its prompt.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "chat/chat_template.h"

namespace sluice {

struct ChatPromptOptions {
  json::Value tools;      // An array as in the request, or null: the template sees None.
  json::Value documents;  // Likewise.
  // An object or null, at most 16 KiB. Ignores names that the template does not read, that are
  // fields of the request, or that are special tokens.
  json::Value chat_template_kwargs;
  bool add_generation_prompt = true;
  // The prompt ends with the text of the last message, so that the model continues it.
  bool continue_final_message = false;
  // The form of contents; absent: the form that the template itself reads.
  std::optional<ChatTemplate::ContentFormat> content_format;
  // Text that replaces an image if contents are strings; empty: images are refused. A template that
  // reads parts receives {"type": "image"}.
  std::string image_text;
  RenderOptions render;
};

// bos_token, eos_token, pad_token, unk_token, ... and the additional ones of tokenizer_config.json
// (which has precedence) and special_tokens_map.json, as an object of strings. Either may be null.
json::Value SpecialTokens(const json::Value& tokenizer_config,
                          const json::Value& special_tokens_map = {});

// The messages as templates expect them: contents joined with "\n" (kString) or as a list of parts
// (kParts); arguments of tool calls as objects (as text if it is not the JSON of an object); null
// contents as empty ones; `reasoning` and `reasoning_content` both set if either is given.
// kInvalidArgument names the message: not an object, no role, or a part that is neither text nor,
// with `image_text`, an image.
Result<json::Value> NormalizeMessages(const json::Value& messages,
                                      ChatTemplate::ContentFormat format,
                                      const std::string& image_text = "");

// kInvalidArgument if chat_template_kwargs are too large or nested too deeply. RenderChatPrompt
// checks this, too.
Status CheckTemplateKwargs(const json::Value& kwargs);

// `messages` as in the request. A template that reads message.thinking (gpt-oss) receives the
// reasoning there, too. If a template fails and there are calls, it is rendered again with their
// arguments in another form: as {"arguments": text} if they are not an object, then all as text.
// Tokenize the result without adding special tokens.
// kInvalidArgument: invalid messages, or an error of ChatTemplate::Render.
Result<std::string> RenderChatPrompt(const ChatTemplate& chat_template,
                                     const json::Value& special_tokens, const json::Value& messages,
                                     const ChatPromptOptions& options = {});

}  // namespace sluice
