#include "server/api/chat_request.h"

#include <fmt/format.h>

#include "server/api/python_text.h"

namespace sluice {
namespace {

constexpr size_t kMaxConversations = 1024;
// What all conversations of a batch share, once for each: every template is given it anew.
constexpr size_t kMaxSharedBytes = size_t{64} << 20;

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

ApiResult<ChatRequest> ReadChatRequest(const json::Value& body, const ServerConfig& config) {
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

ApiResult<BatchChatRequest> ReadBatchChatRequest(const json::Value& body,
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
  API_ASSIGN_OR_RETURN(ChatRequest common, ReadChatRequest(first, config));
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
