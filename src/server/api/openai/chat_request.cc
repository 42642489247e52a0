#include "server/api/openai/chat_request.h"

#include <fmt/format.h>

#include "server/api/request/unsupported_fields.h"

namespace sluice {
namespace {

constexpr size_t kMaxConversations = 1024;
// Maximum bytes of the documents times the number of conversations, because each template gets a
// copy.
constexpr size_t kMaxSharedBytes = size_t{64} << 20;

}  // namespace

void AddReasoningArguments(std::string effort, const ServerConfig& config, json::Value& kwargs) {
  const auto mapped = config.reasoning_efforts.find(effort);
  if (mapped != config.reasoning_efforts.end()) effort = mapped->second;
  if (!kwargs.is_object()) kwargs = json::Value(json::Value::Object{});
  if (kwargs.Find("reasoning_effort") == nullptr) kwargs.Set("reasoning_effort", effort);
  if (kwargs.Find("enable_thinking") == nullptr) kwargs.Set("enable_thinking", effort != "none");
}

ApiResult<ChatRequest> ReadChatRequest(const json::Value& body, const ServerConfig& config,
                                       bool model_takes_tools) {
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
  request.tools = ReadChatToolFields(reader);
  reader.Read("include_reasoning", request.include_reasoning);
  bool logprobs = false;
  std::optional<int64_t> top_logprobs;
  reader.Read("logprobs", logprobs, {.nullable = true});
  reader.Read("top_logprobs", top_logprobs);
  if (logprobs) sampling.logprobs = top_logprobs.value_or(0);
  reader.Read("logprob_token_ids", sampling.logprob_token_ids, {.within_int64 = true});
  // As in vLLM, an echoed prompt comes with its logprobs.
  if (request.echo && !sampling.prompt_logprobs && !sampling.stream)
    sampling.prompt_logprobs = top_logprobs.value_or(0);
  reader.Read("max_tokens", sampling.max_tokens);
  if (reader.Read("max_completion_tokens", sampling.max_tokens))
    sampling.max_tokens_name = "max_completion_tokens";
  std::optional<std::string> effort;
  reader.Read("reasoning_effort", effort);
  // vLLM lacks the field, so its dialect ignores it.
  if (config.dialect != ApiDialect::kVllm)
    reader.Read("prompt_token_ids", request.prompt_ids, {.min = 0});
  if (!errors.empty()) return ValidationFailed(errors);

  if (effort) AddReasoningArguments(*effort, config, request.conversation.chat_template_kwargs);
  API_RETURN_IF_ERROR(RefuseUnsupported(body, config, EndpointKind::kChat));
  API_ASSIGN_OR_RETURN(sampling.constraint, ReadConstraint(body, config, EndpointKind::kChat));
  API_RETURN_IF_ERROR(CheckToolSupport(request.tools, config, model_takes_tools));
  KeepAllowedTools(body.Find("tool_choice"), request.conversation.tools);
  if (request.tools.choice == ToolChoice::kNone && config.exclude_tools_when_tool_choice_none)
    request.conversation.tools = json::Value();
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
  // Reads the other fields as a chat request with the first conversation. A batch is never
  // streamed.
  json::Value first{json::Value::Object{}};
  for (const auto& [key, value] : body.as_object()) {
    if (key != "messages" && key != "stream" && key != "stream_options")
      first.as_object().emplace_back(key, value);
  }
  first.as_object().emplace_back("messages", lists->front());
  BatchChatRequest request;
  // A batch has no tools.
  API_ASSIGN_OR_RETURN(request.common, ReadChatRequest(first, config, /*model_takes_tools=*/true));
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
