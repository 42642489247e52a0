#include "server/api/conversation.h"

#include <fmt/format.h>

#include "chat/chat_prompt.h"
#include "server/api/prompt.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

// The first of the message types that vLLM tries; its errors stand first in what it reports.
constexpr std::string_view kFirstMessageType = "ChatCompletionDeveloperMessageParam";

// Parts of a content that are no text.
ApiStatus CheckParts(const json::Value& messages, const std::string& model_name) {
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    const json::Value* content = messages.as_array()[i].Find("content");
    if (content == nullptr) continue;
    const std::string place = fmt::format("messages.{}.content", i);
    if (content->is_string()) {
      API_RETURN_IF_ERROR(CheckText(content->as_string(), place));
      continue;
    }
    if (!content->is_array()) continue;
    for (size_t j = 0; j < content->as_array().size(); ++j) {
      const json::Value& part = content->as_array()[j];
      const json::Value* type = part.Find("type");
      const std::string kind = type != nullptr && type->is_string() ? type->as_string() : "";
      for (const char* media : {"image_url", "image_embeds", "image_pil", "input_audio",
                                "audio_url", "video_url", "file"}) {
        if (kind == media)
          return BadRequest(fmt::format("{} is not a multimodal model", model_name));
      }
      const json::Value* text = part.Find(kind == "refusal"    ? "refusal"
                                          : kind == "thinking" ? "thinking"
                                                               : "text");
      const bool known = kind == "text" || kind == "refusal" || kind == "thinking" ||
                         kind == "input_text" || kind == "output_text";
      if (!known || text == nullptr || !text->is_string()) {
        return BadRequest(fmt::format(
            "{}.{} must be an object {{\"type\": \"text\", \"text\": string}}, found {}", place, j,
            PythonInput(part).substr(0, 100)));
      }
      API_RETURN_IF_ERROR(CheckText(text->as_string(), place));
    }
  }
  return {};
}

void CheckTools(FieldReader& reader, const json::Value* tools) {
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->as_array().size(); ++i) {
    const json::Value& tool = tools->as_array()[i];
    const std::string place = fmt::format("tools.{}", i);
    if (!tool.is_object()) {
      reader.Add("model_attributes_type", place,
                 "Input should be a valid dictionary or object to extract fields from", tool);
      continue;
    }
    if (const json::Value* type = tool.Find("type");
        type != nullptr && !(type->is_string() && type->as_string() == "function")) {
      reader.Add("literal_error", place + ".type", "Input should be 'function'", *type,
                 "{'expected': \"'function'\"}");
    }
    const json::Value* function = tool.Find("function");
    if (function == nullptr) {
      reader.Add("missing", place + ".function", "Field required", tool);
    } else if (!function->is_object()) {
      reader.Add("model_attributes_type", place + ".function",
                 "Input should be a valid dictionary or object to extract fields from", *function);
    } else if (const json::Value* name = function->Find("name"); name == nullptr) {
      reader.Add("missing", place + ".function.name", "Field required", *function);
    } else if (!name->is_string()) {
      reader.Add("string_type", place + ".function.name", "Input should be a valid string", *name);
    }
  }
}

}  // namespace

void CheckMessage(FieldReader& reader, const json::Value& message, size_t index) {
  const std::string place = fmt::format("messages.{}.{}", index, kFirstMessageType);
  if (!message.is_object()) {
    reader.Add("dict_type", place, "Input should be a valid dictionary", message);
    return;
  }
  const json::Value* role = message.Find("role");
  const json::Value* content = message.Find("content");
  const bool role_known = role != nullptr && role->is_string();
  const bool is_assistant = role_known && role->as_string() == "assistant";
  const bool content_known = content == nullptr || content->is_string() || content->is_array() ||
                             (content->is_null() && is_assistant);
  if (role_known && content_known) return;
  if (content == nullptr) {
    reader.Add("missing", place + ".content", "Field required", message);
  } else if (!content_known) {
    reader.Add("string_type", place + ".content", "Input should be a valid string", *content);
    reader.Add("iterable_type", place + ".content", "Input should be iterable", *content);
  }
  if (role == nullptr) {
    reader.Add("missing", place + ".role", "Field required", message);
  } else if (!role->is_string()) {
    reader.Add("literal_error", place + ".role", "Input should be 'developer'", *role,
               "{'expected': \"'developer'\"}");
  }
}

ConversationFields ReadConversation(FieldReader& reader) {
  ConversationFields conversation;
  const json::Value* messages = reader.object().Find("messages");
  if (messages == nullptr) {
    reader.AddMissing("messages");
  } else if (!messages->is_array()) {
    reader.Add("list_type", "messages", "Input should be a valid list", *messages);
  } else {
    conversation.messages = *messages;
    for (size_t i = 0; i < messages->as_array().size(); ++i)
      CheckMessage(reader, messages->as_array()[i], i);
  }
  if (const json::Value* tools = reader.OptionalList("tools")) {
    conversation.tools = *tools;
    CheckTools(reader, tools);
  }
  if (const json::Value* documents = reader.OptionalList("documents")) {
    conversation.documents = *documents;
    for (size_t i = 0; i < documents->as_array().size(); ++i) {
      const json::Value& document = documents->as_array()[i];
      if (!document.is_object()) {
        reader.Add("dict_type", fmt::format("documents.{}", i),
                   "Input should be a valid dictionary", document);
      }
    }
  }
  if (const json::Value* kwargs = reader.OptionalObject("chat_template_kwargs"))
    conversation.chat_template_kwargs = *kwargs;
  conversation.chat_template = reader.OptionalString("chat_template");
  conversation.add_generation_prompt = reader.Bool("add_generation_prompt", true);
  conversation.continue_final_message = reader.Bool("continue_final_message", false);
  conversation.add_special_tokens = reader.Bool("add_special_tokens", false);
  return conversation;
}

ApiResult<std::string> RenderConversation(const ConversationFields& conversation,
                                          const json::Value& messages, const ModelContext& model) {
  if (conversation.chat_template && !model.config.trust_request_chat_template) {
    return BadRequest(
        "Chat template is passed with request, but --trust-request-chat-template is not set. "
        "Refused request with untrusted "
        "chat template.");
  }
  API_RETURN_IF_ERROR(CheckParts(messages, model.name()));
  if (messages.as_array().empty()) {
    return BadRequest(
        "Cannot apply chat template to an empty conversation. Provide at least one message.");
  }
  if (conversation.continue_final_message && conversation.add_generation_prompt) {
    return BadRequest(
        "continue_final_message and add_generation_prompt are not compatible. Use "
        "continue_final_message when you want the "
        "model to continue the final message, and add_generation_prompt when you want to add a "
        "header that will prompt it to "
        "start a new assistant message instead.");
  }
  // Before they are put into what the server was started with, one by one.
  if (const Status small = CheckTemplateKwargs(conversation.chat_template_kwargs); !small)
    return BadRequest(small.error().message);
  ChatPromptOptions options;
  options.tools = conversation.tools;
  options.documents = conversation.documents;
  options.add_generation_prompt = conversation.add_generation_prompt;
  options.continue_final_message = conversation.continue_final_message;
  options.content_format = model.content_format;
  options.chat_template_kwargs = model.default_template_kwargs;
  if (conversation.chat_template_kwargs.is_object()) {
    if (!options.chat_template_kwargs.is_object())
      options.chat_template_kwargs = json::Value(json::Value::Object{});
    for (const auto& [key, value] : conversation.chat_template_kwargs.as_object()) {
      options.chat_template_kwargs.Set(key, value);
    }
  }
  std::optional<ChatTemplate> own;
  const ChatTemplate* chat_template = model.templates.Select(conversation.tools.is_array());
  if (conversation.chat_template) {
    Result<ChatTemplate> compiled =
        ChatTemplate::Compile(*conversation.chat_template, "chat_template");
    if (!compiled) return BadRequest(compiled.error().message);
    own = *std::move(compiled);
    chat_template = &*own;
  }
  if (chat_template == nullptr) {
    return BadRequest(
        "This model has no chat template; start the server with --chat-template or use "
        "/v1/completions with a prompt of your "
        "own.");
  }
  Result<std::string> text =
      RenderChatPrompt(*chat_template, model.special_tokens, messages, options);
  if (!text) return BadRequest(text.error().message);
  return *std::move(text);
}

}  // namespace sluice
