#include "server/api/answer/answer_plan.h"

#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "engine/adapters.h"
#include "server/api/answer/answer_notes.h"
#include "server/api/answer/answer_receipt.h"
#include "server/api/answer/beam_search.h"
#include "server/api/common/load_report.h"
#include "server/api/common/number_text.h"
#include "server/api/common/python_text.h"
#include "server/api/request/sampling_params.h"

namespace sluice {
namespace {

// Maximum number of characters of a list in the log.
constexpr size_t kMaxLoggedList = 1000;

// Logs the request in vLLM's wording. `prompt` is truncated to --max-log-len. Without log_requests,
// logs at level debug and without the text.
void LogRequest(const ServerConfig& config, const GenerationRequest& generation,
                const SamplingParams& params, std::string_view prompt) {
  const LogLevel level = config.log_requests ? LogLevel::kInfo : LogLevel::kDebug;
  if (!LogEnabled(level)) return;
  std::string shown;
  if (config.log_requests && !prompt.empty()) {
    const size_t limit =
        config.max_log_length < 0 ? prompt.size() : static_cast<size_t>(config.max_log_length);
    shown = fmt::format("prompt: {}, ", PythonRepr(TrimToCharacters(prompt, limit)));
  }
  Log(level, "server",
      "Received request {}: {}params: SamplingParams(n={}, presence_penalty={}, "
      "frequency_penalty={}, repetition_penalty={}, temperature={}, top_p={}, top_k={}, "
      "min_p={}, seed={}, stop={}, stop_token_ids={}, ignore_eos={}, max_tokens={}, "
      "min_tokens={}, logprobs={}, prompt_logprobs={}), prompts: {}, prompt tokens: {}, "
      "lora_request: {}.",
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
      generation.prompts.size(), generation.prompts[0].tokens.size(),
      generation.adapter == nullptr ? "None" : PythonRepr(generation.adapter->name()));
}

// Approximate bytes that a running request holds: its prompts, in the server and in the engine
// (once per sequence), and the state of each sequence.
size_t KeptBytes(const AnswerPlan& plan) {
  constexpr size_t kSequence = 2048;
  size_t bytes = plan.writer_bytes;
  const auto n = static_cast<size_t>(plan.generation.n);
  for (const AnswerOptions::Prompt& prompt : plan.options.prompts)
    bytes += prompt.echo.size() + prompt.text.size();
  for (const Prompt& prompt : plan.generation.prompts) {
    const size_t tokens = sizeof(int32_t) * prompt.tokens.size();
    bytes += 2 * tokens + n * (tokens + kSequence) + prompt.text.size();
    for (const ImageInput& input : prompt.images)
      bytes += static_cast<size_t>(input.image->bytes());
    if (prompt.rows != nullptr) bytes += prompt.rows->values.size() * sizeof(float);
  }
  return bytes;
}

// The data that a request needs to start once its constraint is compiled.
struct ConstrainedStart {
  RequestedConstraint constraint;
  std::shared_ptr<const ModelContext> model;
  std::shared_ptr<ActiveRequests> active;
  std::shared_ptr<ResponseWriter> client;
  GenerationRequest generation;
  std::unique_ptr<AnswerWriter> writer;
};

// Starts immediately if the constraint is cached, else later on a worker. No thread waits for the
// compilation.
void StartConstrained(const RouteCall& call, const RequestedConstraint& constraint,
                      GenerationRequest generation, std::unique_ptr<AnswerWriter> writer) {
  auto start = std::make_shared<ConstrainedStart>(
      ConstrainedStart{constraint, call.model, call.api.active, call.client, std::move(generation),
                       std::move(writer)});
  call.model->constraints->Compile(
      constraint.spec, [start, pool = &call.api.pool](ConstraintCompiler::Compiled compiled) {
        pool->Submit([start, pool, compiled = std::move(compiled)] {
          if (start->client->closed()) return;
          if (!compiled) {
            AnswerStep step;
            step.emplace_back(ErrorEvent{ConstraintError(start->constraint, compiled.error())});
            return start->writer->Write(std::move(step));
          }
          start->generation.constraint = *compiled;
          Generation::Start(start->model, pool, start->active, start->client,
                            std::move(start->generation), std::move(start->writer));
        });
      });
}

}  // namespace

ApiResult<std::string> RequestIdOf(const HttpRequest& request, const SamplingFields& fields) {
  const std::string* header = request.Header("x-request-id");
  if (header != nullptr) {
    API_RETURN_IF_ERROR(CheckNameLength("X-Request-Id", *header));
    return *header;
  }
  return fields.request_id ? *fields.request_id : RandomHex(16);
}

ApiResult<int64_t> PriorityOf(const HttpRequest& request, const SamplingFields& fields,
                              const ServerConfig& config) {
  if (!config.priority_scheduling) return 0;
  const std::string* header = request.Header("x-vllm-priority");
  if (header == nullptr) return fields.priority;
  const std::optional<int64_t> priority = ParseInteger(*header);
  if (!priority) {
    return BadParameter(fmt::format("The header X-Vllm-Priority must be an integer, found '{}'",
                                    header->substr(0, 100)),
                        "X-Vllm-Priority");
  }
  return *priority;
}

ApiResult<std::optional<int>> EngineOf(const HttpRequest& request, const EngineInfo& info) {
  const std::string* header = request.Header("x-data-parallel-rank");
  if (header == nullptr) return std::nullopt;
  const std::optional<int64_t> rank = ParseInteger(*header);
  if (!rank) return std::nullopt;  // ignores invalid values, as vLLM does
  if (*rank < 0 || *rank >= info.num_engines) {
    return BadParameter(
        fmt::format("data_parallel_rank {} is out of range [0, {}).", *rank, info.num_engines),
        "X-data-parallel-rank");
  }
  return static_cast<int>(*rank);
}

ApiResult<AnswerPlan> PlanAnswer(const RouteCall& call, std::string_view prefix,
                                 const SamplingFields& fields) {
  AnswerPlan plan;
  API_ASSIGN_OR_RETURN(plan.generation.adapter, call.model->FindAdapter(fields.model));
  if (plan.generation.adapter != nullptr) plan.options.adapter = plan.generation.adapter->name();
  if (call.model->engine->info().pooling) {
    return BadRequest(fmt::format(
        "{} generates text, but this server has a pooling model: use /v1/embeddings, /pooling, "
        "/classify, /score or /rerank, or start the server with --runner generate.",
        call.route.path));
  }
  API_ASSIGN_OR_RETURN(plan.sampling, ResolveSampling(fields, *call.model));
  API_ASSIGN_OR_RETURN(const std::string id, RequestIdOf(call.request, fields));

  AnswerOptions& options = plan.options;
  options.id = fmt::format("{}{}", prefix, id);
  options.created = UnixSeconds();
  options.model = call.model;
  if (const std::string* format = call.request.Header("endpoint-load-metrics-format")) {
    options.add_headers = [format = *format, metrics = call.api.metrics,
                           engine = call.model->engine](HttpResponse& response) {
      if (auto report = LoadReport(&format, *metrics, engine->num_unfinished() == 0))
        response.headers.push_back(*std::move(report));
    };
  }
  options.n = static_cast<int>(fields.n);
  options.stream = fields.stream;
  options.include_usage = fields.include_usage;
  options.continuous_usage = fields.continuous_usage_stats;
  options.return_token_ids = fields.return_token_ids;
  options.tokens_as_ids = fields.return_tokens_as_token_ids;
  options.logprobs = plan.sampling.logprobs;
  options.lists_logprobs = !plan.sampling.logprob_token_ids.empty();
  options.prompt_logprobs = plan.sampling.prompt_logprobs;

  GenerationRequest& generation = plan.generation;
  generation.id = options.id;
  generation.n = options.n;
  generation.stop = fields.stop;
  generation.include_stop = fields.include_stop_str_in_output;
  generation.skip_special_tokens = fields.skip_special_tokens;
  generation.stream = fields.stream;
  generation.stream_interval = fields.stream_interval;
  API_ASSIGN_OR_RETURN(generation.priority, PriorityOf(call.request, fields, call.api.config));
  API_ASSIGN_OR_RETURN(generation.engine, EngineOf(call.request, call.model->engine->info()));
  generation.client = call.api.identity->Of(call.request);
  generation.ticket = call.ticket;
  generation.cache_salt = fields.cache_salt;
  generation.repetition = fields.repetition;
  generation.trace = RequestTrace::Begin(call.api.exporter, call.request, generation.id,
                                         options.model_name(), generation.n, plan.sampling);
  plan.constraint = fields.constraint;
  return plan;
}

ApiStatus AddPrompt(AnswerPlan& plan, const SamplingFields& fields, Prompt prompt,
                    AnswerOptions::Prompt shown) {
  SamplingParams sampling = plan.sampling;
  API_ASSIGN_OR_RETURN(
      sampling.max_tokens,
      ResolveMaxTokens(fields, *plan.options.model, static_cast<int64_t>(prompt.tokens.size())));
  plan.generation.sampling.push_back(std::move(sampling));
  plan.options.prompts.push_back(std::move(shown));
  plan.generation.prompts.push_back(std::move(prompt));
  return {};
}

ApiStatus StartAnswer(const RouteCall& call, const std::function<WriterFactory>& make_writer,
                      AnswerPlan plan, const SamplingFields& fields, std::string_view logged) {
  ApiContext& api = call.api;
  if (plan.constraint && fields.use_beam_search) {
    const std::string& place = plan.constraint->place;
    const std::string name = place.substr(0, place.find('.'));
    return BadParameter(fmt::format("use_beam_search and {}: beam search does not support "
                                    "constraints, and {} requires one; omit one of them",
                                    name, name),
                        name);
  }
  const size_t kept = KeptBytes(plan);
  // Gives back memory that was reserved for the body and its parsed form.
  API_RETURN_IF_ERROR(ReserveMemory(call.request.memory, kept));
  plan.options.memory = call.request.memory;
  LogRequest(api.config, plan.generation, plan.generation.sampling[0], logged);
  if (call.ticket != nullptr) {
    for (const Prompt& prompt : plan.generation.prompts)
      call.ticket->TakeTokens(static_cast<int64_t>(prompt.tokens.size()));
  }
  int64_t prompt_tokens = 0;
  for (size_t i = 0; i < plan.generation.prompts.size(); ++i) {
    const std::vector<int32_t>& tokens = plan.generation.prompts[i].tokens;
    AnswerOptions::Prompt& shown = plan.options.prompts[i];
    shown.num_tokens = static_cast<int64_t>(tokens.size());
    if (plan.options.shows_prompt_tokens()) shown.tokens = tokens;
    // The answer may complete a UTF-8 character whose first bytes (up to 3) are in the prompt.
    if (plan.options.logprobs)
      shown.tail.assign(
          tokens.end() - static_cast<std::ptrdiff_t>(std::min<size_t>(tokens.size(), 3)),
          tokens.end());
    prompt_tokens += shown.num_tokens;
  }
  std::string id = plan.options.id;
  std::optional<ReceiptDraft> draft;
  if (call.model->receipts != nullptr)
    draft = DraftReceipt(*call.model, plan.options, plan.generation, fields.use_beam_search,
                         plan.constraint.has_value());
  auto writer = WithNotes(make_writer(std::move(plan.options), call.client), call.client,
                          std::move(id), prompt_tokens);
  if (draft) writer = WithReceipt(std::move(writer), *std::move(draft));
  if (plan.constraint) {
    StartConstrained(call, *plan.constraint, std::move(plan.generation), std::move(writer));
    return {};
  }
  if (!fields.use_beam_search) {
    Generation::Start(call.model, &api.pool, api.active, call.client, std::move(plan.generation),
                      std::move(writer));
    return {};
  }
  BeamRequest beam;
  beam.length_penalty = fields.length_penalty;
  beam.ignore_eos = fields.ignore_eos;
  beam.logprobs = fields.logprobs.has_value();
  beam.end_tokens = call.model->end_tokens;
  beam.common = std::move(plan.generation);
  BeamSearch::Start(call.model, &api.pool, api.active, call.client, std::move(beam),
                    std::move(writer));
  return {};
}

}  // namespace sluice
