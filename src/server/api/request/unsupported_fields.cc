#include "server/api/request/unsupported_fields.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "server/api/common/field_reader.h"

namespace sluice {
namespace {

enum class Scope { kAll, kCompletion, kChat, kTrtllm };
// The values that request the feature.
enum class When { kNotNull, kTruthy };

struct UnsupportedField {
  const char* name;
  const char* feature;
  Scope scope;
  When when;
};

constexpr UnsupportedField kUnsupported[] = {
    {"suffix", "text behind the completion", Scope::kCompletion, When::kNotNull},
    {"watermarking", "watermarking", Scope::kAll, When::kTruthy},
    {"return_assistant_tokens_mask", "a mask of the assistant's tokens", Scope::kChat,
     When::kTruthy},

    {"guided_whitespace_pattern", "a pattern of the white space in JSON", Scope::kAll,
     When::kNotNull},

    {"return_context_logits", "returning the logits of the prompt", Scope::kTrtllm, When::kTruthy},
    {"lora_request", "a LoRA adapter for one request", Scope::kTrtllm, When::kTruthy},
    {"disaggregated_params", "computing prompt and answer on different servers", Scope::kTrtllm,
     When::kTruthy},
    {"prompt_ignore_length", "penalties that ignore a part of the prompt", Scope::kTrtllm,
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

// Refuses parameters for servers that run prefill and decode on different machines, unless all
// members are off, as vLLM's clients send them.
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
  if (kind == EndpointKind::kCompletion && IsTruthy(body.Find("use_beam_search")) &&
      IsTruthy(body.Find("stream")))
    return BadRequest("Streaming is not currently supported with beam search");
  if (Given(body, "thinking_token_budget") != nullptr) {
    if (!config.reasoning_parser.empty())
      return Unsupported("a limit on the reasoning tokens", "thinking_token_budget");
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
