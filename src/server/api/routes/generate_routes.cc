// POST /inference/v1/generate: prompt and answer are token ids; no chat template is used.
#include "server/api/answer/answer_plan.h"
#include "server/api/context/route_table.h"
#include "server/api/openai/completion_request.h"

namespace sluice {
namespace {

// Returns the equivalent body of a completion.
ApiResult<json::Value> CompletionOf(const json::Value& body) {
  const json::Value* const ids = body.Find("token_ids");
  if (ids == nullptr || !ids->is_array() || ids->as_array().empty())
    return BadParameter("expected a list of token ids, not empty", "token_ids");
  for (const json::Value& id : ids->as_array()) {
    if (!id.is_integer() || id.as_integer() < 0)
      return BadParameter("expected token ids of at least 0", "token_ids", json::Write(id));
  }
  for (const char* const images : {"features", "content_parts"}) {
    const json::Value* const given = body.Find(images);
    if (given != nullptr && !given->is_null())
      return BadParameter("prompts of this route are only token ids", images);
  }
  const json::Value* const params = body.Find("sampling_params");
  if (params == nullptr || !params->is_object())
    return BadParameter("expected an object", "sampling_params");
  json::Value completion = *params;
  for (const auto& [key, value] : body.as_object()) {
    if (key != "sampling_params" && key != "token_ids" && key != "output_mode")
      completion.Set(key, value);
  }
  completion.Set("detokenize", nullptr);
  completion.Set("prompt", *ids);
  return completion;
}

ApiStatus Generate(const RouteCall& call, const json::Value& body) {
  const ServerConfig& config = call.api.config;
  if (!body.is_object()) return NotAnObject(body);
  const json::Value* const mode = body.Find("output_mode");
  const bool is_text = mode != nullptr && mode->is_string() && mode->as_string() == "text";
  const bool is_tokens = mode == nullptr || (mode->is_string() && mode->as_string() == "tokens");
  if (!is_text && !is_tokens)
    return BadParameter("expected tokens or text", "output_mode", json::Write(*mode));
  API_ASSIGN_OR_RETURN(const json::Value completion, CompletionOf(body));
  API_ASSIGN_OR_RETURN(CompletionRequest request, ReadCompletionRequest(completion, config));
  if (!request.rows.empty())
    return BadParameter("prompts of this route are only token ids", "prompt_embeds");
  SamplingFields& fields = request.sampling;
  const json::Value* const most = completion.Find("max_tokens");
  // By default, generates as many tokens as the context has room for.
  if (most == nullptr || most->is_null()) fields.max_tokens = std::nullopt;
  API_ASSIGN_OR_RETURN(AnswerPlan plan, PlanAnswer(call, "", fields));
  plan.options.hide_text = is_tokens;
  plan.options.weight_version = [weights = call.api.weights](int64_t number) {
    return weights->VersionOf(number);
  };
  API_ASSIGN_OR_RETURN(Prompt prompt, PromptFromIds(request.ids.front(), fields, *call.model));
  API_RETURN_IF_ERROR(AddPrompt(plan, fields, std::move(prompt), {}));
  return StartAnswer(call, MakeGenerateWriter, std::move(plan), fields, "");
}

}  // namespace

std::vector<Route> GenerateRoutes() {
  return {WithGate(RouteGate::kScaleOut,
                   WithBody("/inference/v1/generate", Generate, "Tokens in, tokens out.",
                            "GenerateRequest", "Generated"))};
}

}  // namespace sluice
