// Routes that generate text.
#include <fmt/format.h>

#include "base/json.h"
#include "base/log.h"
#include "server/api/api.h"
#include "server/api/beam_search.h"
#include "server/api/chat.h"
#include "server/api/chat_request.h"
#include "server/api/completion_request.h"
#include "server/api/completions.h"
#include "server/api/field_reader.h"
#include "server/api/load_report.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

ApiResult<AnswerIdentity> MakeIdentity(std::string_view prefix, const HttpRequest& request,
                                       const SamplingFields& fields, const ModelContext& model,
                                       const Metrics* metrics) {
  AnswerIdentity identity;
  const std::string* header = request.Header("x-request-id");
  if (header != nullptr) API_RETURN_IF_ERROR(CheckNameLength("X-Request-Id", *header));
  const std::string id = header != nullptr   ? *header
                         : fields.request_id ? *fields.request_id
                                             : RandomHex(16);
  identity.id = fmt::format("{}{}", prefix, id);
  identity.model = model.name();
  identity.fingerprint = model.fingerprint;
  identity.created = UnixSeconds();
  identity.dialect = model.config.dialect;
  identity.tell_times = model.config.enable_per_request_metrics;
  if (const std::string* format = request.Header("endpoint-load-metrics-format")) {
    identity.decorate = [format = *format, metrics, engine = model.engine](HttpResponse& response) {
      if (auto report = LoadReport(&format, *metrics, engine->num_unfinished() == 0))
        response.headers.push_back(*std::move(report));
    };
  }
  return identity;
}

// The header of that name goes before the field.
ApiResult<int64_t> PriorityOf(const HttpRequest& request, const SamplingFields& fields,
                              const ServerConfig& config) {
  if (!config.priority_scheduling) return 0;
  const std::string* header = request.Header("x-vllm-priority");
  if (header == nullptr) return fields.priority;
  const std::optional<int64_t> priority = PythonInt(*header);
  if (!priority) {
    return BadParameter(fmt::format("The header X-Vllm-Priority must be an integer, found '{}'",
                                    header->substr(0, 100)),
                        "X-Vllm-Priority");
  }
  return *priority;
}

// Characters of a list in the log.
constexpr size_t kMaxLoggedList = 1000;

AnswerOptions MakeOptions(AnswerIdentity identity, std::shared_ptr<const ModelContext> model,
                          const SamplingFields& fields, const SamplingParams& sampling) {
  AnswerOptions options;
  options.identity = std::move(identity);
  options.model = std::move(model);
  options.n = static_cast<int>(fields.n);
  options.stream = fields.stream;
  options.include_usage = fields.include_usage;
  options.continuous_usage = fields.continuous_usage_stats;
  options.return_token_ids = fields.return_token_ids;
  options.tokens_as_ids = fields.return_tokens_as_token_ids;
  options.logprobs = sampling.logprobs;
  options.prompt_logprobs = sampling.prompt_logprobs;
  return options;
}

ApiResult<GenerationRequest> MakeGeneration(const HttpRequest& request, const std::string& id,
                                            const SamplingFields& fields,
                                            const ServerConfig& config) {
  GenerationRequest generation;
  generation.id = id;
  generation.n = static_cast<int>(fields.n);
  generation.stop = fields.stop;
  generation.include_stop = fields.include_stop_str_in_output;
  generation.skip_special_tokens = fields.skip_special_tokens;
  generation.stream = fields.stream;
  generation.stream_interval = fields.stream_interval;
  API_ASSIGN_OR_RETURN(generation.priority, PriorityOf(request, fields, config));
  generation.cache_salt = fields.cache_salt;
  generation.repetition = fields.repetition;
  return generation;
}

BeamRequest MakeBeam(GenerationRequest generation, const SamplingFields& fields,
                     const ModelContext& model) {
  BeamRequest beam;
  beam.length_penalty = fields.length_penalty;
  beam.ignore_eos = fields.ignore_eos;
  beam.logprobs = fields.logprobs.has_value();
  beam.end_tokens = model.end_tokens;
  beam.common = std::move(generation);
  return beam;
}

// As vLLM words it. `prompt` is cut to what --max-log-len allows.
void LogRequest(const ServerConfig& config, const GenerationRequest& generation,
                const SamplingParams& params, std::string_view prompt) {
  if (!config.log_requests) return;
  std::string shown;
  if (!prompt.empty()) {
    const size_t limit =
        config.max_log_length < 0 ? prompt.size() : static_cast<size_t>(config.max_log_length);
    shown = fmt::format("prompt: {}, ", PythonRepr(TrimToCharacters(prompt, limit)));
  }
  LOG_INFO("server",
           "Received request {}: {}params: SamplingParams(n={}, presence_penalty={}, "
           "frequency_penalty={}, repetition_penalty={}, temperature={}, top_p={}, top_k={}, "
           "min_p={}, seed={}, stop={}, stop_token_ids={}, ignore_eos={}, max_tokens={}, "
           "min_tokens={}, logprobs={}, prompt_logprobs={}), prompts: {}, prompt tokens: {}, "
           "lora_request: None.",
           generation.id, shown, generation.n, PythonFloat(params.presence_penalty),
           PythonFloat(params.frequency_penalty), PythonFloat(params.repetition_penalty),
           PythonFloat(params.temperature), PythonFloat(params.top_p), params.top_k,
           PythonFloat(params.min_p), params.seed ? std::to_string(*params.seed) : "None",
           TrimToCharacters(PythonRepr(generation.stop), kMaxLoggedList),
           TrimToCharacters(PythonRepr(std::vector<int64_t>(params.stop_token_ids.begin(),
                                                            params.stop_token_ids.end())),
                            kMaxLoggedList),
           params.ignore_eos ? "True" : "False", params.max_tokens, params.min_tokens,
           params.logprobs ? std::to_string(*params.logprobs) : "None",
           params.prompt_logprobs ? std::to_string(*params.prompt_logprobs) : "None",
           generation.prompts.size(), generation.prompts[0].tokens.size());
}

}  // namespace

ApiStatus Api::Invocations(const HttpRequest& request, const json::Value& body, Writer writer,
                           Model model) {
  return body.Find("messages") != nullptr
             ? Chat(request, body, std::move(writer), std::move(model))
             : Completions(request, body, std::move(writer), std::move(model));
}

ApiStatus Api::Completions(const HttpRequest& request, const json::Value& body, Writer writer,
                           Model model) {
  API_ASSIGN_OR_RETURN(CompletionRequest decoded, ReadCompletionRequest(body, config_));
  SamplingFields& fields = decoded.sampling;
  API_RETURN_IF_ERROR(model->CheckName(fields.model));
  const bool drop_output = decoded.echo && fields.max_tokens == 0;
  if (drop_output) fields.max_tokens = 1;
  if (decoded.echo && !fields.prompt_logprobs) fields.prompt_logprobs = fields.logprobs;
  API_ASSIGN_OR_RETURN(const SamplingParams sampling, ResolveSampling(fields, *model));
  const size_t num_prompts = decoded.texts.size() + decoded.ids.size();
  if (num_prompts * static_cast<size_t>(fields.n) > static_cast<size_t>(config_.max_n)) {
    return BadParameter(fmt::format("{} prompts with n={} are more than {} answers", num_prompts,
                                    fields.n, config_.max_n),
                        "n", std::to_string(fields.n));
  }

  CompletionAnswerOptions options;
  API_ASSIGN_OR_RETURN(AnswerIdentity identity,
                       MakeIdentity("cmpl-", request, fields, *model, metrics_));
  options.common = MakeOptions(std::move(identity), model, fields, sampling);
  if (!decoded.detokenize) options.common.return_token_ids = true;
  API_ASSIGN_OR_RETURN(GenerationRequest generation,
                       MakeGeneration(request, options.common.identity.id, fields, config_));
  std::string shown;
  for (size_t i = 0; i < num_prompts; ++i) {
    API_ASSIGN_OR_RETURN(
        Prompt prompt, decoded.texts.empty()
                           ? PromptFromIds(decoded.ids[i], fields, *model)
                           : PromptFromText(std::move(decoded.texts[i]), decoded.add_special_tokens,
                                            fields, *model));
    SamplingParams params = sampling;
    API_ASSIGN_OR_RETURN(
        params.max_tokens,
        ResolveMaxTokens(fields, *model, static_cast<int64_t>(prompt.tokens.size())));
    generation.sampling.push_back(std::move(params));
    CompletionAnswerOptions::PromptInfo info;
    info.tokens = prompt.tokens;
    if (config_.log_requests && i == 0) shown = prompt.text;
    if (decoded.echo) {
      info.text = decoded.texts.empty() ? model->tokenizer->Decode(prompt.tokens, false)
                                        : std::move(prompt.text);
    }
    options.prompts.push_back(std::move(info));
    generation.prompts.push_back(std::move(prompt));
  }
  options.echo = decoded.echo;
  options.drop_output = drop_output;
  options.detokenize = decoded.detokenize;
  LogRequest(config_, generation, generation.sampling[0], shown);
  auto answer = MakeCompletionAnswer(std::move(options), writer);
  Start(std::move(generation), fields, std::move(writer), std::move(answer), std::move(model));
  return {};
}

ApiStatus Api::Chat(const HttpRequest& request, const json::Value& body, Writer writer,
                    Model model) {
  API_ASSIGN_OR_RETURN(const ChatRequest decoded, ReadChatRequest(body, config_));
  return StartChat(request, decoded, {&decoded.conversation.messages, 1}, std::move(writer),
                   std::move(model));
}

ApiStatus Api::BatchChat(const HttpRequest& request, const json::Value& body, Writer writer,
                         Model model) {
  API_ASSIGN_OR_RETURN(const BatchChatRequest decoded, ReadBatchChatRequest(body, config_));
  return StartChat(request, decoded.common, decoded.conversations, std::move(writer),
                   std::move(model));
}

ApiStatus Api::StartChat(const HttpRequest& request, const ChatRequest& decoded,
                         std::span<const json::Value> conversations, Writer writer, Model model) {
  const ConversationFields& common = decoded.conversation;
  const SamplingFields& fields = decoded.sampling;
  API_RETURN_IF_ERROR(model->CheckName(fields.model));
  API_ASSIGN_OR_RETURN(const SamplingParams sampling, ResolveSampling(fields, *model));

  ChatAnswerOptions options;
  API_ASSIGN_OR_RETURN(AnswerIdentity identity,
                       MakeIdentity("chatcmpl-", request, fields, *model, metrics_));
  options.common = MakeOptions(std::move(identity), model, fields, sampling);
  API_ASSIGN_OR_RETURN(GenerationRequest generation,
                       MakeGeneration(request, options.common.identity.id, fields, config_));
  size_t repeated = 0;  // of the request, for each of its n choices
  for (const json::Value& conversation : conversations) {
    ChatAnswerOptions::Conversation shown;
    Prompt prompt;
    if (decoded.prompt_ids) {
      API_ASSIGN_OR_RETURN(prompt, PromptFromIds(*decoded.prompt_ids, fields, *model));
    } else {
      API_ASSIGN_OR_RETURN(std::string text, RenderConversation(common, conversation, *model));
      if (decoded.return_prompt_text || config_.log_requests) shown.prompt_text = text;
      API_ASSIGN_OR_RETURN(
          prompt, PromptFromText(std::move(text), common.add_special_tokens, fields, *model));
    }
    SamplingParams params = sampling;
    API_ASSIGN_OR_RETURN(
        params.max_tokens,
        ResolveMaxTokens(fields, *model, static_cast<int64_t>(prompt.tokens.size())));
    generation.sampling.push_back(std::move(params));
    const json::Value::Array& messages = conversation.as_array();
    shown.role = config_.response_role;
    if (!messages.empty()) {
      const json::Value& last = messages.back();
      if (!common.add_generation_prompt) shown.role = last.Find("role")->as_string();
      const json::Value* content = last.Find("content");
      if (decoded.echo && last.Find("role")->as_string() == shown.role && content != nullptr &&
          content->is_string())
        shown.echo = content->as_string();
    }
    shown.prompt_tokens = prompt.tokens;
    repeated += shown.echo.size();
    if (decoded.return_prompt_text) repeated += shown.prompt_text.size();
    if (fields.return_token_ids) repeated += kTokenIdBytes * shown.prompt_tokens.size();
    options.conversations.push_back(std::move(shown));
    generation.prompts.push_back(std::move(prompt));
  }
  // A stream starts with all of it at once.
  if (repeated * static_cast<size_t>(fields.n) > config_.max_answer_bytes)
    return tl::unexpected<ApiError>(AnswerTooLarge(config_.max_answer_bytes));
  options.return_prompt_text = decoded.return_prompt_text;
  LogRequest(config_, generation, generation.sampling[0], options.conversations[0].prompt_text);
  auto answer = MakeChatAnswer(std::move(options), writer);
  Start(std::move(generation), fields, std::move(writer), std::move(answer), std::move(model));
  return {};
}

void Api::Start(GenerationRequest generation, const SamplingFields& fields, Writer writer,
                std::unique_ptr<AnswerWriter> answer, Model model) {
  if (fields.use_beam_search) {
    BeamRequest beam = MakeBeam(std::move(generation), fields, *model);
    BeamSearch::Start(std::move(model), &pool_, active_, std::move(writer), std::move(beam),
                      std::move(answer));
  } else {
    Generation::Start(std::move(model), &pool_, active_, std::move(writer), std::move(generation),
                      std::move(answer));
  }
}

// --- trtllm-serve's check that a token can be computed
// ---------------------------------------------------------------------------------------------------

void Api::HealthGenerate(const HttpRequest&, Writer writer, Model model) {
  // An answer of its own: what counts is that a token came.
  class Check : public AnswerWriter {
   public:
    explicit Check(Writer writer) : writer_(std::move(writer)) {}
    void OnPrompt(int, PromptResult) override {}
    void OnDelta(ChoiceDelta) override {}
    void OnDone() override { Say(200, "Generation health check OK"); }
    void OnFailure(const ApiError& error) override {
      Say(500, "Generation health check failed: " + error.message);
    }

   private:
    void Say(int status, std::string text) {
      HttpResponse response;
      response.status = status;
      response.content_type = "text/plain; charset=utf-8";
      response.body = std::move(text);
      writer_->Send(std::move(response));
    }
    const Writer writer_;
  };
  GenerationRequest generation;
  generation.id = "health-" + RandomHex(16);
  Prompt prompt;
  prompt.tokens = {0};
  generation.prompts.push_back(std::move(prompt));
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = 1;
  generation.sampling.push_back(std::move(params));
  auto answer = std::make_unique<Check>(writer);
  Generation::Start(std::move(model), &pool_, active_, std::move(writer), std::move(generation),
                    std::move(answer));
}

}  // namespace sluice
