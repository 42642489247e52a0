#include "server/api/unsupported_fields.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

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

bool Applies(Scope scope, EndpointKind kind, ApiDialect dialect) {
  switch (scope) {
    case Scope::kAll: return true;
    case Scope::kCompletion: return kind == EndpointKind::kCompletion;
    case Scope::kChat: return kind == EndpointKind::kChat;
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

ApiStatus CheckStructuredOutputs(const json::Value& body, EndpointKind kind) {
  static constexpr const char* kKinds[] = {"json",    "regex",       "choice",
                                           "grammar", "json_object", "structural_tag"};
  const json::Value* outputs = Given(body, "structured_outputs");
  if (outputs == nullptr) return {};
  if (!outputs->is_object()) return Wrong("structured_outputs", "an object", outputs);
  const auto count = std::ranges::count_if(
      kKinds, [&](const char* name) { return Given(*outputs, name) != nullptr; });
  if (count > 1 && kind == EndpointKind::kCompletion) {
    return BadParameter("structured_outputs must hold one kind of constraint",
                        "structured_outputs");
  }
  // Errors about the constraint itself have, as in vLLM, no `param`.
  return BadRequest(
      "constrained output is not supported by this server; leave `structured_outputs` out");
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

ApiStatus RefuseUnsupported(const json::Value& body, const ServerConfig& config,
                            EndpointKind kind) {
  API_RETURN_IF_ERROR(CheckResponseFormat(body));
  API_RETURN_IF_ERROR(CheckStructuredOutputs(body, kind));
  if (kind == EndpointKind::kCompletion && IsTruthy(body.Find("use_beam_search")) &&
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
