// From the `messages` of a chat request to the text of its prompt.
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
  // An object or null, of at most 16 KiB. Names that the template does not read, and those of the
  // request's own fields and of special tokens, are ignored.
  json::Value chat_template_kwargs;
  bool add_generation_prompt = true;
  // The prompt ends with the text of the last message, so that the model continues it.
  bool continue_final_message = false;
  // How contents are given to the template; absent: as the template itself treats them.
  std::optional<ChatTemplate::ContentFormat> content_format;
  // What stands for an image where contents are given as text; empty: images are refused. A
  // template that is given parts gets {"type": "image"}.
  std::string image_text;
  RenderOptions render;
};

// bos_token, eos_token, pad_token, unk_token, ... and the extra ones that tokenizer_config.json
// (first) and special_tokens_map.json name, as an object of strings. Either may be null.
json::Value SpecialTokens(const json::Value& tokenizer_config,
                          const json::Value& special_tokens_map = {});

// The messages as templates expect them: parts joined with "\n" (kString) or as a list of parts
// (kParts), arguments of tool calls as objects (the text itself where it is not the JSON of one),
// null contents as empty ones, `reasoning` and `reasoning_content` alike. kInvalidArgument names
// the message: not an object, no role, a part that is neither text nor, with `image_text`, an
// image.
Result<json::Value> NormalizeMessages(const json::Value& messages,
                                      ChatTemplate::ContentFormat format,
                                      const std::string& image_text = "");

// kInvalidArgument where chat_template_kwargs are larger or nested deeper than settings of a
// template are; RenderChatPrompt says so too.
Status CheckTemplateKwargs(const json::Value& kwargs);

// `messages` as in the request; a template that reads `thinking` of a message (gpt-oss) is given
// its reasoning there, too. A template that fails on the arguments of calls is given them again in
// the form that it can take: {"arguments": text} where they are no object, or all of them as text.
// The result is tokenized without adding special tokens.
// kInvalidArgument: bad messages, or what ChatTemplate::Render says.
Result<std::string> RenderChatPrompt(const ChatTemplate& chat_template,
                                     const json::Value& special_tokens, const json::Value& messages,
                                     const ChatPromptOptions& options = {});

}  // namespace sluice
