// POST /v1/completions.
#include <fmt/format.h>

#include "server/api/answer/answer_plan.h"
#include "server/api/context/route_table.h"
#include "server/api/openai/completion_request.h"
#include "server/api/openai/generate.h"

namespace sluice {
namespace {

// Returns the i-th prompt; embeddings come first. Call at most once for each i, because texts are
// moved.
ApiResult<Prompt> PromptOf(CompletionRequest& request, size_t i, const ModelContext& model) {
  const SamplingFields& fields = request.sampling;
  if (i < request.rows.size()) return PromptFromRows(request.rows[i], model);
  i -= request.rows.size();
  if (request.texts.empty()) return PromptFromIds(request.ids[i], fields, model);
  return PromptFromText(std::move(request.texts[i]), request.add_special_tokens, fields, model);
}

}  // namespace

ApiStatus AnswerCompletion(const RouteCall& call, const json::Value& body) {
  const ServerConfig& config = call.api.config;
  API_ASSIGN_OR_RETURN(CompletionRequest request, ReadCompletionRequest(body, config));
  SamplingFields& fields = request.sampling;
  // With max_tokens 0, the engine still computes one token, which is not shown.
  const bool drop_output = request.echo && fields.max_tokens == 0;
  if (drop_output) fields.max_tokens = 1;
  if (request.echo && !fields.prompt_logprobs) fields.prompt_logprobs = fields.logprobs;
  API_ASSIGN_OR_RETURN(AnswerPlan plan, PlanAnswer(call, "cmpl-", fields));
  const size_t num_rows = request.rows.size();
  const size_t num_prompts = num_rows + request.texts.size() + request.ids.size();
  if (num_prompts * static_cast<size_t>(fields.n) > static_cast<size_t>(config.max_n)) {
    return BadParameter(fmt::format("{} prompts with n={} exceed the limit of {} answers",
                                    num_prompts, fields.n, config.max_n),
                        "n", std::to_string(fields.n));
  }
  AnswerOptions& options = plan.options;
  options.echo = request.echo;
  options.hide_text = drop_output || !request.detokenize;
  options.hide_logprobs = drop_output;
  if (!request.detokenize) options.return_token_ids = true;

  std::string logged;
  for (size_t i = 0; i < num_prompts; ++i) {
    API_ASSIGN_OR_RETURN(Prompt prompt, PromptOf(request, i, *call.model));
    if (config.log_requests && i == 0) logged = prompt.text;
    AnswerOptions::Prompt shown;
    if (request.echo && !options.return_token_ids) {
      shown.echo = request.texts.empty() ? call.model->tokenizer->Decode(prompt.tokens, false)
                                         : std::move(prompt.text);
    }
    API_RETURN_IF_ERROR(AddPrompt(plan, fields, std::move(prompt), std::move(shown)));
  }
  const bool is_trtllm = config.dialect == ApiDialect::kTrtllm;
  return StartAnswer(call, is_trtllm ? MakeTrtllmCompletionWriter : MakeVllmCompletionWriter,
                     std::move(plan), fields, logged);
}

std::vector<Route> CompletionRoutes() {
  return {WithBody("/v1/completions", AnswerCompletion, "Continue prompts.", "CompletionRequest",
                   "Completion")};
}

}  // namespace sluice
