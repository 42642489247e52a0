#include "server/api/request/conversation.h"

#include <algorithm>

#include <fmt/format.h>

#include "chat/chat_prompt.h"
#include "server/api/request/prompt_images.h"

namespace sluice {
namespace {

// vLLM tries one type of message after another, and the first type's errors come first in its
// report. Clients find that type's name in `param`.
constexpr std::string_view kFirstMessageType = "ChatCompletionDeveloperMessageParam";
constexpr std::string_view kCallType = "ChatCompletionMessageFunctionToolCallParam";

// Refuses a part of a message's content unless it is text or an image.
ApiStatus CheckPart(const json::Value& part, std::string_view place, const ModelContext& model) {
  static constexpr std::string_view kMedia[] = {"image_embeds", "image_pil", "input_audio",
                                                "audio_url",    "video_url", "file"};
  static constexpr std::string_view kText[] = {"text", "input_text", "output_text", "refusal",
                                               "thinking"};
  const std::string kind = TextAt(part, "type");
  if (IsImagePart(kind)) return {};
  if (std::ranges::find(kMedia, kind) != std::end(kMedia)) {
    if (model.image_processor == nullptr)
      return BadRequest(fmt::format("{} is not a multimodal model", model.name()));
    return BadRequest(fmt::format(
        "{}: parts of type '{}' are not supported: text and images (image_url) are read", place,
        kind));
  }
  const bool has_own_name = kind == "refusal" || kind == "thinking";
  const json::Value* text = part.Find(has_own_name ? std::string_view(kind) : "text");
  if (std::ranges::find(kText, kind) != std::end(kText) && text != nullptr && text->is_string())
    return {};
  return BadRequest(
      fmt::format("{}: expected an object {{\"type\": \"text\", \"text\": string}}, found {}",
                  place, Describe(part)));
}

ApiStatus CheckParts(const json::Value& messages, const ModelContext& model) {
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    const json::Value* content = messages.as_array()[i].Find("content");
    if (content == nullptr || !content->is_array()) continue;
    for (size_t j = 0; j < content->as_array().size(); ++j) {
      API_RETURN_IF_ERROR(
          CheckPart(content->as_array()[j], fmt::format("messages.{}.content.{}", i, j), model));
    }
  }
  return {};
}

void CheckTools(FieldReader& reader, const json::Value::Array& tools) {
  const FieldRule required{.required = true};
  static constexpr std::string_view kTypes[] = {"function"};
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string place = fmt::format("tools.{}", i);
    if (!tools[i].is_object()) {
      reader.Add(place, "an object", tools[i]);
      continue;
    }
    FieldReader tool(tools[i], "body." + place, reader.errors());
    tool.Check<std::string>("type", {.one_of = kTypes});
    const json::Value::Object* function = nullptr;
    if (!tool.Read("function", function, required)) continue;
    FieldReader described(*tool.Raw("function"), fmt::format("body.{}.function", place),
                          reader.errors());
    described.Check<std::string>("name", required);
    described.Check<std::string>("description", {.nullable = true});
    const json::Value::Object* parameters = nullptr;
    described.Read("parameters", parameters, {.nullable = true});
    described.Check<bool>("strict", {.nullable = true});
  }
}

// Checks the calls of an assistant's message. The arguments were written by a model, so any text is
// accepted, including an empty one. As in vLLM, which checks the calls last, errors do not name the
// message.
void CheckCalls(FieldReader& reader, const json::Value& message) {
  const json::Value* calls = message.Find("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  for (size_t i = 0; i < calls->as_array().size(); ++i) {
    const json::Value& call = calls->as_array()[i];
    const std::string place = fmt::format("{}.{}", i, kCallType);
    if (!call.is_object()) {
      reader.Add(place, "an object", call);
      continue;
    }
    const json::Value* id = call.Find("id");
    if (id == nullptr) {
      reader.AddMissing(place + ".id");
    } else if (!id->is_string()) {
      reader.Add(place + ".id", "a string", *id);
    }
    const json::Value* function = call.Find("function");
    const json::Value* name = function == nullptr ? nullptr : function->Find("name");
    const json::Value* arguments = function == nullptr ? nullptr : function->Find("arguments");
    if (name == nullptr || !name->is_string() || !ReplayedArguments(arguments)) {
      reader.Add(place + ".function", "an object with a string `name` and a string `arguments`",
                 function == nullptr ? json::Value() : *function);
    }
  }
}

// Returns a tool in the form in which vLLM passes it to the template: these keys in this order,
// followed by the request's other keys.
json::Value ShownTool(const json::Value& tool) {
  const auto ordered = [](const json::Value& object, std::initializer_list<std::string_view> keys) {
    json::Value::Object result;
    for (const std::string_view key : keys) {
      const json::Value* value = object.Find(key);
      result.emplace_back(key, value == nullptr ? json::Value() : *value);
    }
    for (const auto& [key, value] : object.as_object()) {
      if (std::ranges::find(keys, key) == keys.end()) result.emplace_back(key, value);
    }
    return json::Value(std::move(result));
  };
  if (!tool.is_object()) return tool;
  json::Value shown = ordered(tool, {"type", "function"});
  if (shown.Find("type")->is_null()) shown.Set("type", "function");
  if (const json::Value* function = shown.Find("function"); function->is_object())
    shown.Set("function", ordered(*function, {"name", "description", "parameters"}));
  return shown;
}

}  // namespace

void CheckMessage(FieldReader& reader, const json::Value& message, size_t index) {
  const std::string place = fmt::format("messages.{}.{}", index, kFirstMessageType);
  if (!message.is_object()) return reader.Add(place, "an object", message);
  const json::Value* role = message.Find("role");
  const json::Value* content = message.Find("content");
  const bool has_role = role != nullptr && role->is_string();
  // Without a role it is unknown whether the content may be absent.
  if (content == nullptr) {
    if (!has_role) reader.AddMissing(place + ".content");
  } else if (!content->is_string() && !content->is_array() &&
             !(content->is_null() && has_role && role->as_string() == "assistant")) {
    reader.Add(place + ".content", "a string or a list of parts", *content);
  }
  if (role == nullptr) {
    reader.AddMissing(place + ".role");
  } else if (!has_role) {
    reader.Add(place + ".role", "a string", *role);
  }
  if (has_role && role->as_string() == "assistant") CheckCalls(reader, message);
}

std::optional<std::string> ReplayedArguments(const json::Value* given) {
  if (given == nullptr || given->is_null()) return "";
  if (!given->is_string()) return std::nullopt;
  return given->as_string();
}

ConversationFields ReadConversation(FieldReader& reader) {
  ConversationFields conversation;
  const FieldRule nullable{.nullable = true};
  const json::Value::Array* list = nullptr;
  if (reader.Read("messages", list, {.required = true})) {
    conversation.messages = *reader.Raw("messages");
    for (size_t i = 0; i < list->size(); ++i) CheckMessage(reader, (*list)[i], i);
  }
  if (reader.Read("tools", list, nullable)) {
    json::Value::Array tools;
    for (const json::Value& tool : *list) tools.push_back(ShownTool(tool));
    conversation.tools = json::Value(std::move(tools));
    CheckTools(reader, *list);
  }
  if (reader.Read("documents", list, nullable)) {
    conversation.documents = *reader.Raw("documents");
    for (size_t i = 0; i < list->size(); ++i) {
      if (!(*list)[i].is_object())
        reader.Add(fmt::format("documents.{}", i), "an object", (*list)[i]);
    }
  }
  const json::Value::Object* kwargs = nullptr;
  if (reader.Read("chat_template_kwargs", kwargs, nullable))
    conversation.chat_template_kwargs = *reader.Raw("chat_template_kwargs");
  ReadImageSettings(reader, conversation);
  reader.Read("chat_template", conversation.chat_template);
  reader.Read("add_generation_prompt", conversation.add_generation_prompt);
  reader.Read("continue_final_message", conversation.continue_final_message);
  reader.Read("add_special_tokens", conversation.add_special_tokens);
  return conversation;
}

void ReadImageSettings(FieldReader& reader, ConversationFields& conversation) {
  for (const char* name : {"mm_processor_kwargs", "media_io_kwargs"}) {
    const json::Value::Object* settings = nullptr;
    if (reader.Read(name, settings, {.nullable = true}) && !settings->empty())
      conversation.image_settings = name;
  }
}

ApiResult<RenderedConversation> RenderConversation(const RouteCall& call,
                                                   const ConversationFields& conversation,
                                                   const json::Value& messages) {
  const ModelContext& model = *call.model;
  if (conversation.chat_template && !model.config.trust_request_chat_template) {
    return BadRequest(
        "Chat template is passed with request, but --trust-request-chat-template is not set. "
        "Refused request with untrusted chat template.");
  }
  API_RETURN_IF_ERROR(CheckParts(messages, model));
  if (messages.as_array().empty()) {
    return BadRequest(
        "Cannot apply chat template to an empty conversation. Provide at least one message.");
  }
  if (conversation.continue_final_message && conversation.add_generation_prompt) {
    return BadRequest(
        "continue_final_message and add_generation_prompt are not compatible: the first continues "
        "the last message, the second starts a new one.");
  }
  // Checked before the arguments are merged one by one with the command line's arguments.
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
        "This model has no chat template; start the server with --chat-template, or send a prompt "
        "to /v1/completions.");
  }
  RenderedConversation rendered;
  API_ASSIGN_OR_RETURN(rendered.images, ReadImages(call, messages, conversation.own_places));
  if (!rendered.images.empty()) {
    if (const std::string& name = conversation.image_settings; !name.empty()) {
      return BadParameter(
          fmt::format(
              "{} cannot be set per request; set it for all images with the server's option --{}",
              name, name == "media_io_kwargs" ? "media-io-kwargs" : "mm-processor-kwargs"),
          name);
    }
    options.image_text = model.image_processor->placeholder();
  }
  options.render.is_cancelled = [&call] { return call.client->closed() || call.api.draining; };
  Result<std::string> text =
      RenderChatPrompt(*chat_template, model.special_tokens, messages, options);
  if (!text && text.error().code == ErrorCode::kCancelled)
    return tl::unexpected<ApiError>(ServiceUnavailable(kServerIsShuttingDown));
  if (!text) return BadRequest(text.error().message);
  API_ASSIGN_OR_RETURN(rendered.text, ExpandPlaceholders(model, *text, rendered.images));
  return rendered;
}

ApiResult<Prompt> PromptFromConversation(RenderedConversation conversation, bool add_special_tokens,
                                         const SamplingFields& fields, const ModelContext& model) {
  API_ASSIGN_OR_RETURN(Prompt prompt, PromptFromText(std::move(conversation.text),
                                                     add_special_tokens, fields, model));
  API_ASSIGN_OR_RETURN(prompt.images, PlaceImages(prompt.tokens, conversation.images));
  return prompt;
}

}  // namespace sluice
