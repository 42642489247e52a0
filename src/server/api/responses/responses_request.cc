#include "server/api/responses/responses_request.h"

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "server/api/request/unsupported_fields.h"
#include "server/api/responses/response_items.h"

namespace sluice {
namespace {

constexpr FieldRule kNullable{.nullable = true};
constexpr std::string_view kLogprobs = "message.output_text.logprobs";

// Makes the checks that vLLM makes before it checks types.
ApiStatus CheckRaw(const json::Value& body) {
  const json::Value* store = body.Find("store");
  if (IsTruthy(body.Find("background")) && store != nullptr && !IsTruthy(store))
    return BadParameter("background can only be used when `store` is true", "background");
  const json::Value* prompt = body.Find("prompt");
  if (prompt != nullptr && !prompt->is_null())
    return BadParameter("prompt template is not supported", "prompt");
  return CheckRawFields(body, EndpointKind::kCompletion);
}

// Returns the `members` of `given` in the order in which a response has them; absent ones are null.
// Returns null if `given` is not an object.
json::Value ShownObject(const json::Value* given, std::initializer_list<std::string_view> members) {
  if (given == nullptr || !given->is_object()) return {};
  json::Value shown{json::Value::Object{}};
  for (const std::string_view member : members) {
    const json::Value* value = given->Find(member);
    shown.Set(member, value == nullptr ? json::Value() : *value);
  }
  return shown;
}

struct TextFormat {
  const json::Value* schema = nullptr;  // null: no schema
  std::string place = "text.format";    // location of the schema
  bool strict = false;
  bool any_object = false;
};

void ReadTextFormat(FieldReader& reader, TextFormat& format, json::Value& shown) {
  const json::Value::Object* members = nullptr;
  if (!reader.Read("text", members, kNullable)) return;
  static constexpr std::string_view kVerbosities[] = {"low", "medium", "high"};
  const json::Value& given = *reader.Raw("text");
  FieldReader text(given, "body.text", reader.errors());
  text.Check<std::string>("verbosity", {.nullable = true, .one_of = kVerbosities});
  shown = ShownObject(&given, {"format", "verbosity"});
  if (!text.Read("format", members, kNullable)) return;
  const json::Value& value = *text.Raw("format");
  FieldReader fields(value, "body.text.format", reader.errors());
  const std::string kind = TextAt(value, "type");
  if (kind == "text") {
    shown.Set("format", ShownObject(&value, {"type"}));
  } else if (kind == "json_object") {
    format.any_object = true;
    format.schema = SchemaBesideObject(value, format.place);
    shown.Set("format", ShownObject(&value, {"type"}));
  } else if (kind == "json_schema") {
    fields.Check<std::string>("name", {.required = true});
    fields.Check<std::string>("description", kNullable);
    fields.Read("strict", format.strict, kNullable);
    format.place += ".schema";
    if (fields.Read("schema", members, {.required = true})) format.schema = value.Find("schema");
    shown.Set("format", ShownObject(&value, {"name", "schema", "type", "description", "strict"}));
  } else {
    // vLLM tries several types of `format`. Its error names a location inside the first of them,
    // and so does this one.
    const json::Value* type = value.Find("type");
    reader.Add("text.format.ResponseFormatText.type", R"("text", "json_object" or "json_schema")",
               type == nullptr ? json::Value() : *type);
  }
}

void ReadReasoning(FieldReader& reader, std::optional<std::string>& effort, json::Value& shown) {
  const json::Value::Object* members = nullptr;
  if (!reader.Read("reasoning", members, kNullable)) return;
  static constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                                  "high", "xhigh",   "max"};
  static constexpr std::string_view kSummaries[] = {"auto", "concise", "detailed"};
  const json::Value& given = *reader.Raw("reasoning");
  FieldReader reasoning(given, "body.reasoning", reader.errors());
  reasoning.Read("effort", effort, {.one_of = kEfforts});
  for (const char* summary : {"summary", "generate_summary"})
    reasoning.Check<std::string>(summary, {.nullable = true, .one_of = kSummaries});
  shown = ShownObject(&given, {"context", "effort", "generate_summary", "mode", "summary"});
}

// Returns whether the answer shows logprobs.
bool ReadInclude(FieldReader& reader) {
  static constexpr std::string_view kParts[] = {"code_interpreter_call.outputs",
                                                "computer_call_output.output.image_url",
                                                "file_search_call.results",
                                                "message.input_image.image_url",
                                                kLogprobs,
                                                "reasoning.encrypted_content",
                                                "web_search_call.action.sources",
                                                "web_search_call.results"};
  const json::Value::Array* parts = nullptr;
  if (!reader.Read("include", parts, kNullable)) return false;
  bool logprobs = false;
  for (size_t i = 0; i < parts->size(); ++i) {
    std::string part;
    if (!ReadValue((*parts)[i], {.one_of = kParts}, part))
      reader.Add(fmt::format("include.{}", i), Expected({.one_of = kParts}, part), (*parts)[i]);
    logprobs |= part == kLogprobs;
  }
  return logprobs;
}

// Resets the sampling fields that a response cannot have.
void ResetForeign(SamplingFields& sampling) {
  sampling.n = 1;
  sampling.use_beam_search = false;
  sampling.prompt_logprobs.reset();
  sampling.return_token_ids = false;
}

}  // namespace

ApiResult<ResponsesRequest> ReadResponsesRequest(const json::Value& body,
                                                 const ServerConfig& config) {
  if (!body.is_object()) return NotAnObject(body);
  API_RETURN_IF_ERROR(CheckRaw(body));

  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  ResponsesRequest request;
  if (const json::Value* input = body.Find("input")) {
    CheckInput(reader, *input);
  } else {
    reader.AddMissing("input");
  }
  CheckResponseTools(reader);
  SamplingFields& sampling = request.chat.sampling;
  sampling = ReadSamplingFields(reader, config);
  ResetForeign(sampling);
  sampling.max_tokens_name = "max_output_tokens";
  reader.Read("max_output_tokens", sampling.max_tokens);
  std::optional<int64_t> top_logprobs;
  reader.Read("top_logprobs", top_logprobs, {.min = 0});
  if (ReadInclude(reader)) sampling.logprobs = top_logprobs.value_or(0);

  reader.Read("instructions", request.instructions, kNullable);
  reader.Read("previous_response_id", request.previous_response_id);
  reader.Read("store", request.store, kNullable);
  reader.Read("background", request.background, kNullable);
  reader.Read("include_reasoning", request.chat.include_reasoning, kNullable);
  static constexpr std::string_view kTruncations[] = {"auto", "disabled"};
  static constexpr std::string_view kTiers[] = {"auto", "default", "flex", "scale", "priority"};
  std::string truncation = "disabled", tier = "auto";
  reader.Read("truncation", truncation, {.nullable = true, .one_of = kTruncations});
  reader.Read("service_tier", tier, {.nullable = true, .one_of = kTiers});
  if (truncation == "auto") sampling.truncate_prompt_tokens = -1;
  std::optional<int64_t> max_tool_calls;
  reader.Read("max_tool_calls", max_tool_calls);
  std::vector<std::pair<std::string, std::string>> metadata;
  reader.Read("metadata", metadata, kNullable);
  const json::Value::Object* kwargs = nullptr;
  if (reader.Read("chat_template_kwargs", kwargs, kNullable))
    request.chat.conversation.chat_template_kwargs = *reader.Raw("chat_template_kwargs");
  ReadImageSettings(reader, request.chat.conversation);
  std::optional<std::string> effort;
  json::Value shown_reasoning, shown_text;
  ReadReasoning(reader, effort, shown_reasoning);
  TextFormat format;
  ReadTextFormat(reader, format, shown_text);
  if (!errors.empty()) return ValidationFailed(errors);

  API_RETURN_IF_ERROR(RefuseUnsupported(body, config, EndpointKind::kChat));
  for (const char* name :
       {"enable_response_messages", "previous_input_messages", "previous_response"}) {
    if (IsTruthy(body.Find(name))) return Unsupported("raw messages in a response", name);
  }
  API_RETURN_IF_ERROR(RefuseResponseTools(body, config));
  API_ASSIGN_OR_RETURN(sampling.constraint, ReadConstraint(body, config, EndpointKind::kChat));
  if (format.schema != nullptr || format.any_object) {
    if (sampling.constraint) {
      return BadRequest(
          fmt::format("an answer can have one constraint, but these are given: {}, text.format; "
                      "omit all but one",
                      sampling.constraint->place));
    }
    API_ASSIGN_OR_RETURN(
        sampling.constraint,
        format.schema == nullptr
            ? ReadSchemaConstraint(json::Value(json::Value::Object{{"type", "object"}}),
                                   /*strict=*/false, format.place, config)
            : ReadSchemaConstraint(*format.schema, format.strict, format.place, config));
  }
  if (effort)
    AddReasoningArguments(*effort, config, request.chat.conversation.chat_template_kwargs);

  request.items = InputItems(*body.Find("input"));
  const json::Value* tools = body.Find("tools");
  const json::Value* choice = reader.Raw("tool_choice");
  request.chat.conversation.tools = ChatTools(tools);
  request.namespaced_tools = ToolsInNamespaces(tools);
  KeepAllowedTools(choice, request.chat.conversation.tools);
  request.chat.tools = ReadResponseTools(reader, request.chat.conversation.tools);
  if (request.chat.tools.choice == ToolChoice::kNone && config.exclude_tools_when_tool_choice_none)
    request.chat.conversation.tools = json::Value();
  if (EndsUnfinished(request.items)) {
    request.chat.conversation.continue_final_message = true;
    request.chat.conversation.add_generation_prompt = false;
  }
  if (!sampling.request_id) sampling.request_id = NewResponseId("resp_");

  const auto given = [&reader](std::string_view name) {
    const json::Value* value = reader.Raw(name);
    return value == nullptr ? json::Value() : *value;
  };
  json::Value shown_tools = ShownTools(tools);
  const char* default_choice = shown_tools.as_array().empty() ? "none" : "auto";
  request.shown = json::Value(json::Value::Object{
      {"instructions", given("instructions")},
      {"metadata", given("metadata")},
      {"parallel_tool_calls", request.chat.tools.parallel},
      {"tool_choice", choice == nullptr ? json::Value(default_choice) : *choice},
      {"tools", std::move(shown_tools)},
      {"background", request.background},
      {"max_tool_calls", given("max_tool_calls")},
      {"previous_response_id", given("previous_response_id")},
      {"reasoning", std::move(shown_reasoning)},
      {"service_tier", tier},
      {"text", std::move(shown_text)},
      {"truncation", truncation},
      {"user", given("user")},
  });
  return request;
}

}  // namespace sluice
