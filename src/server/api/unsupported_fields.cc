#include "server/api/unsupported_fields.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "server/api/constraint_check.h"
#include "server/api/field_reader.h"

namespace sluice {
namespace {

enum class Scope { kAll, kCompletion, kChat, kTrtllm };
// Which values ask for the feature.
enum class When { kNotNull, kTruthy };

struct UnsupportedField {
  const char* name;
  const char* feature;
  Scope scope;
  When when;
};

constexpr UnsupportedField kUnsupported[] = {
    {"prompt_embeds", "a prompt given as embeddings", Scope::kCompletion, When::kNotNull},
    {"suffix", "text behind the completion", Scope::kCompletion, When::kNotNull},
    {"logprob_token_ids", "logprobs of chosen token ids", Scope::kAll, When::kNotNull},
    {"watermarking", "watermarking", Scope::kAll, When::kTruthy},
    {"return_assistant_tokens_mask", "a mask of the assistant's tokens", Scope::kChat,
     When::kTruthy},

    {"guided_json", "constrained output", Scope::kAll, When::kNotNull},
    {"guided_regex", "constrained output", Scope::kAll, When::kNotNull},
    {"guided_choice", "constrained output", Scope::kAll, When::kNotNull},
    {"guided_grammar", "constrained output", Scope::kAll, When::kNotNull},
    {"guided_decoding_backend", "constrained output", Scope::kAll, When::kNotNull},
    {"guided_whitespace_pattern", "constrained output", Scope::kAll, When::kNotNull},

    {"guided_decoding", "constrained output", Scope::kTrtllm, When::kNotNull},
    {"return_context_logits", "returning the logits of the prompt", Scope::kTrtllm, When::kTruthy},
    {"lora_request", "a LoRA adapter for one request", Scope::kTrtllm, When::kTruthy},
    {"disaggregated_params", "computing prompt and answer on different servers", Scope::kTrtllm,
     When::kTruthy},
    {"prompt_ignore_length", "penalties that leave a part of the prompt out", Scope::kTrtllm,
     When::kTruthy},
    {"top_p_min", "a top_p that decays", Scope::kTrtllm, When::kTruthy},
    {"early_stopping", "early stopping of beam search", Scope::kTrtllm, When::kTruthy},
    {"mm_processor_kwargs", "images and sound", Scope::kTrtllm, When::kTruthy},
};

bool Applies(Scope scope, RequestKind kind, ApiDialect dialect) {
  switch (scope) {
    case Scope::kAll: return true;
    case Scope::kCompletion: return kind == RequestKind::kCompletion;
    case Scope::kChat: return kind == RequestKind::kChat;
    case Scope::kTrtllm: return dialect != ApiDialect::kVllm;  // vLLM ignores unknown fields
  }
  return false;
}

// The member `name`; null if it is absent or null.
const json::Value* Given(const json::Value& object, std::string_view name) {
  const json::Value* value = object.Find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

tl::unexpected<ApiError> Wrong(std::string_view place, std::string_view expected,
                               const json::Value* found) {
  return ValidationFailed({{fmt::format("body.{}", place), std::string(expected),
                            found == nullptr ? "nothing" : Describe(*found)}});
}

ApiStatus CheckResponseFormat(const json::Value& body) {
  const json::Value* format = Given(body, "response_format");
  if (format == nullptr) return {};
  if (!format->is_object()) return Wrong("response_format", "an object", format);
  const json::Value* type = format->Find("type");
  const std::string kind = type != nullptr && type->is_string() ? type->as_string() : "";
  if (kind == "text") return {};
  if (kind == "json_schema" && !IsTruthy(format->Find("json_schema"))) {
    return BadParameter(
        "When response_format type is 'json_schema', the 'json_schema' field must be provided.",
        "response_format");
  }
  if (kind == "json_object" || kind == "json_schema" || kind == "structural_tag") {
    return BadParameter(fmt::format("response_format of type '{}' is not supported by this server; "
                                    "use 'text' or leave it out",
                                    kind),
                        "response_format");
  }
  return Wrong("response_format.type", "\"text\", \"json_object\" or \"json_schema\"", type);
}

ApiStatus CheckStructuredOutputs(const json::Value& body, RequestKind request_kind) {
  const json::Value* outputs = Given(body, "structured_outputs");
  if (outputs == nullptr) return {};
  if (!outputs->is_object()) return Wrong("structured_outputs", "an object", outputs);
  std::vector<std::string_view> kinds;
  for (const char* kind : {"json", "regex", "choice", "grammar", "json_object", "structural_tag"}) {
    if (Given(*outputs, kind) != nullptr) kinds.push_back(kind);
  }
  if (kinds.empty()) {
    return BadRequest(
        "You must use one kind of structured outputs constraint but none are specified: " +
        json::Write(*outputs));
  }
  if (kinds.size() > 1) {
    static constexpr std::string_view kMessage =
        "You can only use one kind of constraints for structured outputs ('json', 'regex' or "
        "'choice').";
    if (request_kind == RequestKind::kChat) return BadRequest(std::string(kMessage));
    return BadParameter(kMessage, "structured_outputs");
  }
  const json::Value& constraint = *outputs->Find(kinds[0]);
  if (kinds[0] == "choice" && !IsTruthy(&constraint))
    return BadRequest("structured_outputs.choice must not be empty");
  if (kinds[0] == "regex" && constraint.is_string()) {
    if (const auto mistake = RegexMistake(constraint.as_string()))
      return BadRequest("structured_outputs.regex: invalid regex: " + *mistake);
  }
  if (kinds[0] == "grammar" && constraint.is_string()) {
    if (const auto mistake = GrammarMistake(constraint.as_string()))
      return BadRequest("structured_outputs.grammar: invalid grammar: " + *mistake);
  }
  return Unsupported("constrained output", "structured_outputs");
}

// Parameters of servers that compute prompt and answer on different machines; vLLM's clients send
// them with all members off.
ApiStatus CheckTransferParams(const json::Value& body) {
  for (const char* name : {"kv_transfer_params", "ec_transfer_params"}) {
    const json::Value* params = body.Find(name);
    if (params == nullptr || !params->is_object()) continue;
    for (const auto& [key, value] : params->as_object()) {
      if (IsTruthy(&value)) return Unsupported("moving a cache between servers", name);
    }
  }
  return {};
}

}  // namespace

ApiStatus RefuseUnsupported(const json::Value& body, const ServerConfig& config, RequestKind kind) {
  API_RETURN_IF_ERROR(CheckResponseFormat(body));
  API_RETURN_IF_ERROR(CheckStructuredOutputs(body, kind));
  if (kind == RequestKind::kCompletion && IsTruthy(body.Find("use_beam_search")) &&
      IsTruthy(body.Find("stream")))
    return BadRequest("Streaming is not currently supported with beam search");
  if (Given(body, "thinking_token_budget") != nullptr) {
    return BadRequest(
        "thinking_token_budget is set but no reasoning parser is configured; leave "
        "`thinking_token_budget` out");
  }
  API_RETURN_IF_ERROR(CheckTransferParams(body));
  for (const UnsupportedField& field : kUnsupported) {
    if (!Applies(field.scope, kind, config.dialect)) continue;
    const bool asked = field.when == When::kNotNull ? Given(body, field.name) != nullptr
                                                    : IsTruthy(body.Find(field.name));
    if (asked) return Unsupported(field.feature, field.name);
  }
  return {};
}

}  // namespace sluice
