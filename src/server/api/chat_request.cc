#include "server/api/chat_request.h"

#include <fmt/format.h>

#include "server/api/unsupported_fields.h"

namespace sluice {
namespace {

constexpr size_t kMaxConversations = 1024;
// Bytes of the documents times the conversations: each template gets its own copy.
constexpr size_t kMaxSharedBytes = size_t{64} << 20;

// What vLLM checks of tools and tool_choice before it reads types.
ApiStatus CheckToolChoice(const json::Value& body) {
  const json::Value* tools = body.Find("tools");
  const json::Value* choice = body.Find("tool_choice");
  if (tools != nullptr && tools->is_array() && tools->as_array().empty()) {
    return BadParameter(
        "`tools` must not be an empty array. Either provide at least one tool or omit the field "
        "entirely.",
        "tools");
  }
  if (choice == nullptr || choice->is_null() || *choice == json::Value("none")) return {};
  if (tools == nullptr || tools->is_null())
    return BadParameter("When using `tool_choice`, `tools` must be set.", "tool_choice");
  if (*choice == json::Value("auto") || *choice == json::Value("required")) return {};
  const json::Value* function = choice->Find("function");
  const json::Value* name = function == nullptr ? nullptr : function->Find("name");
  if (name == nullptr || !name->is_string()) {
    return BadParameter(
        fmt::format("`tool_choice` must be \"none\", \"auto\", \"required\" or an object with "
                    "`function.name`, found {}",
                    Describe(*choice)),
        "tool_choice");
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

// This server does not parse tool calls, so tools can only be shown to the template.
// REQUIRES: CheckToolChoice has passed.
ApiStatus RefuseToolCalls(const json::Value& body, const ServerConfig& config) {
  const json::Value* tools = body.Find("tools");
  const json::Value* choice = body.Find("tool_choice");
  if (tools == nullptr || tools->is_null()) return {};
  const bool chosen = choice != nullptr && !choice->is_null();
  const std::string kind = !chosen ? "auto" : choice->is_string() ? choice->as_string() : "named";
  if (kind == "none") return {};
  if (!config.tool_call_parser.empty()) {
    return BadParameter(
        "Tool calls are not parsed by this server; leave `tools` out or set `tool_choice` to "
        "\"none\"",
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

// Templates read the effort as an argument; those of the request itself take precedence.
void AddReasoningArguments(const std::string& effort, json::Value& kwargs) {
  if (!kwargs.is_object()) kwargs = json::Value(json::Value::Object{});
  if (kwargs.Find("reasoning_effort") == nullptr) kwargs.Set("reasoning_effort", effort);
  if (kwargs.Find("enable_thinking") == nullptr) kwargs.Set("enable_thinking", effort != "none");
}

}  // namespace

ApiResult<ChatRequest> ReadChatRequest(const json::Value& body, const ServerConfig& config) {
  if (!body.is_object()) return NotAnObject(body);
  const json::Value* messages = body.Find("messages");
  if (messages != nullptr && messages->is_null())
    return BadRequest("messages must be a list, not null");
  API_RETURN_IF_ERROR(CheckRawFields(body, EndpointKind::kChat));
  API_RETURN_IF_ERROR(CheckToolChoice(body));

  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  ChatRequest request;
  SamplingFields& sampling = request.sampling;
  request.conversation = ReadConversation(reader);
  sampling = ReadSamplingFields(reader, config);
  reader.Read("echo", request.echo);
  reader.Read("return_prompt_text", request.return_prompt_text, {.nullable = true});
  bool logprobs = false;
  std::optional<int64_t> top_logprobs;
  reader.Read("logprobs", logprobs, {.nullable = true});
  reader.Read("top_logprobs", top_logprobs);
  if (logprobs) sampling.logprobs = top_logprobs.value_or(0);
  // As in vLLM, an echo comes with the logprobs of its prompt.
  if (request.echo && !sampling.prompt_logprobs && !sampling.stream)
    sampling.prompt_logprobs = top_logprobs.value_or(0);
  reader.Read("max_tokens", sampling.max_tokens);
  if (reader.Read("max_completion_tokens", sampling.max_tokens))
    sampling.max_tokens_name = "max_completion_tokens";
  std::optional<std::string> effort;
  reader.Read("reasoning_effort", effort);
  // vLLM has no such field.
  if (config.dialect != ApiDialect::kVllm)
    reader.Read("prompt_token_ids", request.prompt_ids, {.min = 0});
  if (!errors.empty()) return ValidationFailed(errors);

  if (effort) AddReasoningArguments(*effort, request.conversation.chat_template_kwargs);
  API_RETURN_IF_ERROR(RefuseUnsupported(body, config, EndpointKind::kChat));
  API_ASSIGN_OR_RETURN(sampling.constraint, ReadConstraint(body, config, EndpointKind::kChat));
  API_RETURN_IF_ERROR(RefuseToolCalls(body, config));
  return request;
}

ApiResult<BatchChatRequest> ReadBatchChatRequest(const json::Value& body,
                                                 const ServerConfig& config) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  const json::Value::Array* lists = nullptr;
  if (reader.Read("messages", lists, {.required = true}) && lists->empty())
    reader.Add("messages", "a list of at least 1 conversation", *reader.Raw("messages"));
  for (size_t i = 0; lists != nullptr && i < lists->size(); ++i) {
    const json::Value& list = (*lists)[i];
    if (!list.is_array()) {
      reader.Add(fmt::format("messages.{}", i), "a list", list);
      continue;
    }
    for (size_t j = 0; j < list.as_array().size(); ++j) CheckMessage(reader, list.as_array()[j], j);
  }
  if (!errors.empty()) return ValidationFailed(errors);
  if (lists->size() > kMaxConversations) {
    return BadParameter(fmt::format("at most {} conversations fit into one request, got {}",
                                    kMaxConversations, lists->size()),
                        "messages");
  }
  if (const json::Value* n = body.Find("n");
      n != nullptr && n->is_integer() && *n != json::Value(1)) {
    return BadParameter("Batch chat completions do not support `n > 1`. Please set `n` to 1.", "n",
                        Describe(*n));
  }
  if (IsTruthy(body.Find("tools")))
    return BadParameter("Batch chat completions do not support `tools`.", "tools");
  // What is left is a chat request with the first conversation; a batch is never streamed.
  json::Value first{json::Value::Object{}};
  for (const auto& [key, value] : body.as_object()) {
    if (key != "messages" && key != "stream" && key != "stream_options")
      first.as_object().emplace_back(key, value);
  }
  first.as_object().emplace_back("messages", lists->front());
  BatchChatRequest request;
  API_ASSIGN_OR_RETURN(request.common, ReadChatRequest(first, config));
  const size_t shared_bytes = json::Write(request.common.conversation.documents).size();
  if (shared_bytes * lists->size() > kMaxSharedBytes) {
    return BadParameter(
        fmt::format("documents of {} bytes for {} conversations are too much for one request; send "
                    "fewer conversations at a time",
                    shared_bytes, lists->size()),
        "documents");
  }
  request.conversations = *lists;
  return request;
}

}  // namespace sluice
