// POST /v1/systemone and /v1/decisions: the probabilities of answers to typed questions, computed
// from the logprobs of a reply's first token. The probabilities do not depend on other requests.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "server/api/answer/answer_plan.h"
#include "server/api/context/route_table.h"
#include "server/api/openai/decision_request.h"
#include "server/api/openai/decision_writer.h"
#include "server/api/request/conversation.h"

namespace sluice {
namespace {

// Returns the tokens of `labels` as the first token of a reply to `prompt`. Each label must be a
// single token, different from the other labels' tokens.
ApiResult<std::vector<int32_t>> TokensOf(const std::vector<std::string>& labels,
                                         const std::vector<int32_t>& prompt,
                                         const Tokenizer& tokenizer) {
  // Only the prompt's text after its last added token affects how a label is tokenized.
  auto begin = prompt.end();
  while (begin != prompt.begin() && !tokenizer.IsAdded(*(begin - 1))) --begin;
  const std::vector<int32_t> tail(begin, prompt.end());
  const std::string text = tokenizer.Decode(tail, /*skip_special_tokens=*/false);
  std::vector<int32_t> tokens;
  for (const std::string& label : labels) {
    std::vector<int32_t> longer = tokenizer.Encode(text + label, /*add_special_tokens=*/false);
    const bool is_one = longer.size() == tail.size() + 1 &&
                        std::equal(tail.begin(), tail.end(), longer.begin()) &&
                        std::ranges::find(tokens, longer.back()) == tokens.end();
    if (!is_one) {
      return BadParameter(fmt::format("label '{}' is not one distinct token after this model's "
                                      "chat prompt: it cannot answer questions of this type",
                                      label),
                          "questions");
    }
    tokens.push_back(longer.back());
  }
  return tokens;
}

// Turns thinking off, so that the first token of the reply is the answer.
ApiResult<json::Value> TemplateArguments(const json::Value& given) {
  json::Value arguments = given.is_object() ? given : json::Value(json::Value::Object{});
  const json::Value* const thinking = arguments.Find("enable_thinking");
  if (thinking != nullptr && IsTruthy(thinking)) {
    return BadParameter("the answer is read from the reply's first token, so thinking must be off",
                        "chat_template_kwargs");
  }
  arguments.Set("enable_thinking", false);
  return arguments;
}

ApiStatus AddQuestion(const RouteCall& call, const ConversationFields& conversation,
                      const DecisionRequest& request, const DecisionQuestion& question,
                      const SamplingFields& fields, AnswerPlan& plan) {
  json::Value::Array messages;
  const auto say = [&messages](const char* role, std::string text) {
    json::Value message(json::Value::Object{});
    message.Set("role", role);
    message.Set("content", std::move(text));
    messages.push_back(std::move(message));
  };
  if (!request.instructions.empty()) say("system", request.instructions);
  say("user", fmt::format("{}\n\n{}", request.state, TextOf(question)));
  API_ASSIGN_OR_RETURN(RenderedConversation rendered,
                       RenderConversation(call, conversation, json::Value(std::move(messages))));
  API_ASSIGN_OR_RETURN(Prompt prompt,
                       PromptFromConversation(std::move(rendered), /*add_special_tokens=*/false,
                                              fields, *call.model));
  const Tokenizer& tokenizer = *call.model->tokenizer;
  API_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                       TokensOf(LabelsOf(question), prompt.tokens, tokenizer));
  // Other spellings of the labels count only if every spelling is a single token.
  std::vector<std::string> spellings = LabelsOf(question);
  const std::vector<std::string> aliases = AliasesOf(question);
  spellings.insert(spellings.end(), aliases.begin(), aliases.end());
  if (auto all = TokensOf(spellings, prompt.tokens, tokenizer); all && !aliases.empty())
    tokens = *std::move(all);
  API_RETURN_IF_ERROR(AddPrompt(plan, fields, std::move(prompt), {}));
  SamplingParams& sampling = plan.generation.sampling.back();
  sampling.logprobs = static_cast<int32_t>(tokens.size());
  sampling.logprob_token_ids = std::move(tokens);
  return {};
}

ApiStatus Decide(const RouteCall& call, DecisionRequest request) {
  SamplingFields fields;
  fields.model = request.model;
  fields.temperature = 0;
  fields.repetition_penalty = 1;
  fields.max_tokens = 1;
  fields.ignore_eos = true;
  fields.logprobs = 0;
  fields.priority = request.priority;
  fields.request_id = request.request_id;
  fields.cache_salt = request.cache_salt;
  API_ASSIGN_OR_RETURN(AnswerPlan plan, PlanAnswer(call, "decision-", fields));
  // Overrides --logprobs-mode, which may request logits.
  plan.sampling.logprobs_mode = LogprobsMode::kRawLogprobs;
  ConversationFields conversation;
  API_ASSIGN_OR_RETURN(conversation.chat_template_kwargs,
                       TemplateArguments(request.chat_template_kwargs));
  for (const DecisionQuestion& question : request.questions)
    API_RETURN_IF_ERROR(AddQuestion(call, conversation, request, question, fields, plan));
  plan.writer_bytes = request.state.size();
  const auto make_writer = MakeDecisionWriter(std::move(request));
  return StartAnswer(call, make_writer, std::move(plan), fields, "");
}

ApiStatus AnswerSystemOne(const RouteCall& call, const json::Value& body) {
  API_ASSIGN_OR_RETURN(DecisionRequest request, ReadSystemOneRequest(body));
  return Decide(call, std::move(request));
}

ApiStatus AnswerDecisions(const RouteCall& call, const json::Value& body) {
  API_ASSIGN_OR_RETURN(DecisionRequest request, ReadDecisionRequest(body));
  return Decide(call, std::move(request));
}

}  // namespace

std::vector<Route> DecisionRoutes() {
  return {
      WithBody("/v1/decisions", AnswerDecisions, "Answer typed questions with probabilities.",
               "DecisionRequest", "Decision"),
      WithBody("/v1/systemone", AnswerSystemOne, "Answer typed questions with probabilities.",
               "SystemOneRequest", "SystemOneAnswer"),
  };
}

}  // namespace sluice
