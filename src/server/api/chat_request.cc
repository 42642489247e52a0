#include <algorithm>

#include <fmt/format.h>

#include "chat/chat_prompt.h"
#include "server/api/chat.h"
#include "server/api/prompt.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

constexpr size_t kMaxConversations = 1024;
// What all conversations of a batch share, once for each: every template is given it anew.
constexpr size_t kMaxSharedBytes = size_t{64} << 20;

// The first of the message types that vLLM tries; its errors stand first in what it reports.
constexpr std::string_view kFirstMessageType = "ChatCompletionDeveloperMessageParam";

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

ApiStatus CheckToolUse(const json::Value& body) {
  const json::Value* tools = body.Find("tools");
  const json::Value* choice = body.Find("tool_choice");
  if (tools != nullptr && tools->is_array() && tools->as_array().empty()) {
    return BadParameter(
        "`tools` must not be an empty array. Either provide at least one tool or omit the field "
        "entirely.",
        "tools");
  }
  if (choice == nullptr || choice->is_null() ||
      (choice->is_string() && choice->as_string() == "none"))
    return {};
  if (tools == nullptr || tools->is_null())
    return BadParameter("When using `tool_choice`, `tools` must be set.", "tool_choice");
  if (choice->is_string() && (choice->as_string() == "auto" || choice->as_string() == "required"))
    return {};
  if (!choice->is_object()) {
    return BadParameter(fmt::format("Invalid value for `tool_choice`: {}! Only named tools, "
                                    "\"none\", \"auto\" or \"required\" "
                                    "are supported.",
                                    PythonInput(*choice).substr(0, 100)),
                        "tool_choice");
  }
  const json::Value* function = choice->Find("function");
  const json::Value* name = function == nullptr ? nullptr : function->Find("name");
  if (name == nullptr || !name->is_string()) {
    return BadParameter("Expected field `function.name` in `tool_choice`.", "tool_choice");
  }
  if (tools->is_array()) {
    for (const json::Value& tool : tools->as_array()) {
      const json::Value* described = tool.Find("function");
      const json::Value* tool_name = described == nullptr ? nullptr : described->Find("name");
      if (tool_name != nullptr && *tool_name == *name) return {};
    }
  }
  return BadParameter(
      "The tool specified in `tool_choice` does not match any of the specified `tools`",
      "tool_choice");
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

// Nothing here reads tool calls out of an answer, so tools are only shown to the template.
ApiStatus RefuseToolChoice(const json::Value& body, const ServerConfig& config) {
  const json::Value* tools = body.Find("tools");
  const json::Value* choice = body.Find("tool_choice");
  const bool has_tools = tools != nullptr && !tools->is_null();
  const bool chosen = choice != nullptr && !choice->is_null();
  if (!has_tools) return {};
  const std::string kind = !chosen ? "auto" : choice->is_string() ? choice->as_string() : "named";
  if (kind == "none") return {};
  if (!config.tool_call_parser.empty()) {
    return BadParameter(
        "Tool calls are not read out of answers by this server; leave `tools` out or set "
        "`tool_choice` to \"none\"",
        "tools");
  }
  if (kind == "auto") {
    return BadRequest(
        R"("auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set)");
  }
  if (kind == "required")
    return BadRequest(R"(tool_choice="required" requires --tool-call-parser to be set)");
  return BadRequest(
      fmt::format(R"(tool_choice=function "{}" requires --tool-call-parser to be set)",
                  choice->Find("function")->Find("name")->as_string()));
}

}  // namespace

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

ApiResult<ChatRequest> DecodeChatRequest(const json::Value& body, const ServerConfig& config) {
  if (!body.is_object()) return NotAnObject(body);
  const json::Value* messages = body.Find("messages");
  if (messages != nullptr && messages->is_null())
    return BadRequest("messages must be a list, not null");
  API_RETURN_IF_ERROR(CheckRawFields(body, /*is_chat=*/true));
  API_RETURN_IF_ERROR(CheckToolUse(body));

  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  ChatRequest request;
  request.conversation = ReadConversation(reader);
  request.sampling = ReadSamplingFields(reader, config);
  request.echo = reader.Bool("echo", false);
  request.return_prompt_text = reader.OptionalBool("return_prompt_text").value_or(false);
  const bool logprobs = reader.OptionalBool("logprobs").value_or(false);
  const std::optional<int64_t> top_logprobs = reader.OptionalInt("top_logprobs");
  if (logprobs) request.sampling.logprobs = top_logprobs.value_or(0);
  // As vLLM does: an echo comes with the logprobs of its prompt.
  if (request.echo && !request.sampling.prompt_logprobs && !request.sampling.stream) {
    request.sampling.prompt_logprobs = top_logprobs.value_or(0);
  }
  request.sampling.max_tokens = reader.OptionalInt("max_tokens");
  if (const auto newer = reader.OptionalInt("max_completion_tokens")) {
    request.sampling.max_tokens = newer;
    request.sampling.max_tokens_name = "max_completion_tokens";
  }
  const std::optional<std::string> effort = reader.OptionalString("reasoning_effort");
  if (!errors.empty()) return ValidationFailed(errors);
  if (effort) {
    json::Value& kwargs = request.conversation.chat_template_kwargs;
    if (!kwargs.is_object()) kwargs = json::Value(json::Value::Object{});
    if (kwargs.Find("reasoning_effort") == nullptr) kwargs.Set("reasoning_effort", *effort);
    if (kwargs.Find("enable_thinking") == nullptr) kwargs.Set("enable_thinking", *effort != "none");
  }
  API_RETURN_IF_ERROR(RefuseUnsupported(reader, /*is_chat=*/true));
  if (config.dialect != ApiDialect::kVllm) {
    API_RETURN_IF_ERROR(RefuseTrtllmFields(reader));
    request.prompt_ids = reader.OptionalInts("prompt_token_ids", {.min = 0});
    if (!errors.empty()) return ValidationFailed(errors);
  }
  if (IsTruthy(reader.Raw("return_assistant_tokens_mask"))) {
    return Unsupported("a mask of the assistant's tokens", "return_assistant_tokens_mask");
  }
  API_RETURN_IF_ERROR(RefuseToolChoice(body, config));
  return request;
}

ApiResult<BatchChatRequest> DecodeBatchChatRequest(const json::Value& body,
                                                   const ServerConfig& config) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  const json::Value* lists = body.Find("messages");
  if (lists == nullptr) {
    reader.AddMissing("messages");
  } else if (!lists->is_array()) {
    reader.Add("list_type", "messages", "Input should be a valid list", *lists);
  } else if (lists->as_array().empty()) {
    reader.Add("too_short", "messages", "List should have at least 1 item after validation, not 0",
               *lists, "{'field_type': 'List', 'min_length': 1, 'actual_length': 0}");
  } else {
    for (size_t i = 0; i < lists->as_array().size(); ++i) {
      const json::Value& list = lists->as_array()[i];
      if (!list.is_array()) {
        reader.Add("list_type", fmt::format("messages.{}", i), "Input should be a valid list",
                   list);
        continue;
      }
      for (size_t j = 0; j < list.as_array().size(); ++j)
        CheckMessage(reader, list.as_array()[j], j);
    }
  }
  if (!errors.empty()) return ValidationFailed(errors);
  const json::Value::Array& conversations = lists->as_array();
  if (conversations.size() > kMaxConversations) {
    return BadParameter(fmt::format("at most {} conversations fit into one request, got {}",
                                    kMaxConversations, conversations.size()),
                        "messages");
  }
  if (const json::Value* n = body.Find("n");
      n != nullptr && n->is_integer() && *n != json::Value(1)) {
    return BadParameter("Batch chat completions do not support `n > 1`. Please set `n` to 1.", "n",
                        PythonInput(*n));
  }
  if (IsTruthy(body.Find("tools")))
    return BadParameter("Batch chat completions do not support `tools`.", "tools");
  // What is left is a chat request with the first conversation; a batch is never streamed.
  json::Value first{json::Value::Object{}};
  for (const auto& [key, value] : body.as_object()) {
    if (key != "messages" && key != "stream" && key != "stream_options")
      first.as_object().emplace_back(key, value);
  }
  first.as_object().emplace_back("messages", conversations[0]);
  API_ASSIGN_OR_RETURN(ChatRequest common, DecodeChatRequest(first, config));
  const size_t shared_bytes = json::Write(common.conversation.documents).size();
  if (shared_bytes * conversations.size() > kMaxSharedBytes) {
    return BadParameter(
        fmt::format("documents of {} bytes for {} conversations are too much for one request; send "
                    "fewer conversations at a time",
                    shared_bytes, conversations.size()),
        "documents");
  }
  BatchChatRequest request;
  request.common = std::move(common);
  request.conversations = conversations;
  return request;
}

}  // namespace sluice
