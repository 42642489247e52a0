#include "server/api/api.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/log.h"
#include "server/api/chat.h"
#include "server/api/completions.h"
#include "server/api/field_reader.h"
#include "server/api/request_body.h"

namespace sluice {

struct Api::Route {
  std::string_view path;
  std::vector<std::string_view> methods;  // empty: any
  void (Api::*inline_handler)(const HttpRequest&, Writer) = nullptr;
  void (Api::*worker_handler)(const HttpRequest&, Writer, Model, Ticket) = nullptr;
};

const Api::Route Api::kRoutes[] = {
    {"/health", {"GET"}, &Api::Health},
    {"/ping", {"GET", "POST"}, &Api::Ping},
    {"/version", {"GET"}, &Api::Version},
    {"/load", {"GET"}, &Api::Load},
    {"/metrics", {}, &Api::ShowMetrics},
    {"/v1/models", {"GET"}, &Api::Models},
    {"/tokenizer_info", {"GET"}, &Api::TokenizerInfo},
    {"/v1/completions", {"POST"}, nullptr, &Api::Completions},
    {"/v1/chat/completions", {"POST"}, nullptr, &Api::Chat},
    {"/invocations", {"POST"}, nullptr, &Api::Invocations},
    {"/tokenize", {"POST"}, nullptr, &Api::Tokenize},
    {"/detokenize", {"POST"}, nullptr, &Api::Detokenize},
    {"/v1/completions/render", {"POST"}, &Api::ScaleOut},
    {"/v1/chat/completions/render", {"POST"}, &Api::ScaleOut},
    {"/inference/v1/generate", {"POST"}, &Api::ScaleOut},
    {"/v1/responses", {"POST"}, &Api::NotServed},
    {"/v1/messages", {"POST"}, &Api::NotServed},
    {"/v1/messages/count_tokens", {"POST"}, &Api::NotServed},
};

namespace {

constexpr std::string_view kModelsPrefix = "/v1/models/";

// Time does not depend on how much of the key is right.
bool SameKey(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^
                  static_cast<unsigned char>(key.empty() ? 0 : key[i % key.size()]);
  }
  return difference == 0;
}

ApiError Unavailable(std::string message) {
  ApiError error;
  error.status = 503;
  error.type = "ServiceUnavailableError";
  error.message = std::move(message);
  return error;
}

void AppendModelCard(std::string& out, const ModelContext& model, const std::string& name) {
  out += R"({"id":)";
  json::AppendString(out, name);
  out +=
      fmt::format(R"(,"object":"model","created":{},"owned_by":"sluice","root":)", model.created);
  json::AppendString(out, model.config.model_argument);
  out += fmt::format(
      R"(,"parent":null,"max_model_len":{},"permission":[{{"id":"modelperm-{}","object":"model_permission","created":{},)"
      R"("allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,)"
      R"("allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}}]}})",
      model.max_model_len, RandomHex(16), model.created);
}

AnswerIdentity MakeIdentity(std::string_view prefix, const HttpRequest& request,
                            const SamplingFields& fields, const ModelContext& model) {
  AnswerIdentity identity;
  const std::string* header = request.Header("x-request-id");
  const std::string id = header != nullptr   ? *header
                         : fields.request_id ? *fields.request_id
                                             : RandomHex(16);
  identity.id = fmt::format("{}{}", prefix, id);
  identity.model = model.name();
  identity.fingerprint = model.fingerprint;
  identity.created = UnixSeconds();
  return identity;
}

GenerationRequest MakeGeneration(const AnswerIdentity& identity, const SamplingFields& fields,
                                 bool priority) {
  GenerationRequest generation;
  generation.id = identity.id;
  generation.n = static_cast<int>(fields.n);
  generation.stop = fields.stop;
  generation.include_stop = fields.include_stop_str_in_output;
  generation.skip_special_tokens = fields.skip_special_tokens;
  generation.stream = fields.stream;
  generation.stream_interval = fields.stream_interval;
  generation.priority = priority ? fields.priority : 0;
  generation.cache_salt = fields.cache_salt;
  return generation;
}

}  // namespace

Api::Api(const ServerConfig& config, Metrics* metrics)
    : config_(config), metrics_(metrics), cors_(config), pool_(config.worker_threads) {}

Api::~Api() {
  Stop();
}

void Api::Attach(std::shared_ptr<const ModelContext> model) {
  std::lock_guard lock(mutex_);
  model_ = std::move(model);
}

Api::Model Api::model() const {
  std::lock_guard lock(mutex_);
  return model_;
}

std::string_view Api::WithoutRoot(std::string_view path) const {
  std::string_view root = config_.root_path;
  while (root.ends_with('/')) root.remove_suffix(1);
  if (root.empty() || !path.starts_with(root)) return path;
  const std::string_view rest = path.substr(root.size());
  return rest.starts_with('/') ? rest : path;
}

const Api::Route* Api::FindRoute(std::string_view path) const {
  static const Route one_model{"/v1/models/{model_id}", {"GET"}, &Api::OneModel};
  for (const Route& route : kRoutes) {
    if (route.path == path) return &route;
  }
  if (path.starts_with(kModelsPrefix) && path.size() > kModelsPrefix.size()) return &one_model;
  return nullptr;
}

std::string_view Api::RouteOf(std::string_view path) const {
  const Route* route = FindRoute(WithoutRoot(path));
  return route == nullptr ? "none" : route->path;
}

bool Api::Authorized(const HttpRequest& head) const {
  if (config_.api_keys.empty() || head.method == "OPTIONS") return true;
  const std::string_view path = WithoutRoot(head.path);
  bool guarded = false;
  for (const std::string_view prefix : {"/v1", "/v2", "/inference", "/cohere"})
    guarded |= path.starts_with(prefix);
  if (!guarded) return true;
  const std::string* header = head.Header("authorization");
  if (header == nullptr) return false;
  const size_t space = header->find(' ');
  std::string scheme = header->substr(0, space);
  for (char& c : scheme) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  const std::string_view given =
      space == std::string::npos ? "" : std::string_view(*header).substr(space + 1);
  bool known = false;
  for (const std::string& key : config_.api_keys) known |= !key.empty() && SameKey(given, key);
  return known && scheme == "bearer";
}

std::optional<HttpResponse> Api::CheckHead(const HttpRequest& head) {
  if (Authorized(head)) return std::nullopt;
  HttpResponse response;
  response.status = 401;
  response.body = R"({"error":"Unauthorized"})";
  return response;
}

std::vector<HttpHeader> Api::CommonHeaders(const HttpRequest& request, int status) {
  std::vector<HttpHeader> headers;
  if (status != 401 &&
      !(request.method == "OPTIONS" && request.Header("access-control-request-method") != nullptr &&
        request.Header("origin") != nullptr)) {
    headers = cors_.Headers(request);
  }
  if (config_.enable_request_id_headers) {
    const std::string* given = request.Header("x-request-id");
    headers.push_back(
        {"x-request-id", given != nullptr && !given->empty() ? *given : RandomHex(32)});
  }
  return headers;
}

void Api::Handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
  if (std::optional<HttpResponse> preflight = cors_.Preflight(request))
    return writer->Send(*std::move(preflight));
  std::string_view path = WithoutRoot(request.path);
  const Route* route = FindRoute(path == "/metrics/" ? "/metrics" : path);
  if (route == nullptr || path.ends_with('/')) {
    if (path.size() > 1 && path.ends_with('/') &&
        FindRoute(path.substr(0, path.size() - 1)) != nullptr && path != "/metrics/") {
      HttpResponse redirect;
      redirect.status = 307;
      redirect.content_type.clear();
      redirect.headers.push_back(
          {"location",
           fmt::format("http://{}{}{}{}", request.host,
                       PercentEncodeUnsafe(
                           std::string_view(request.path).substr(0, request.path.size() - 1)),
                       request.query.empty() ? "" : "?", request.query)});
      return writer->Send(std::move(redirect));
    }
    if (route == nullptr) return writer->Send(DetailResponse(404, "Not Found"));
  }
  if (!route->methods.empty() && std::find(route->methods.begin(), route->methods.end(),
                                           request.method) == route->methods.end()) {
    HttpResponse response = DetailResponse(405, "Method Not Allowed");
    response.headers.push_back({"allow", fmt::format("{}", fmt::join(route->methods, ", "))});
    return writer->Send(std::move(response));
  }
  if (route->inline_handler != nullptr)
    return (this->*route->inline_handler)(request, std::move(writer));

  Model current = model();
  if (draining_) return writer->Send(ErrorResponse(Unavailable("The server is shutting down.")));
  if (current == nullptr)
    return writer->Send(ErrorResponse(Unavailable("The model is still being loaded.")));
  if (pending_->fetch_add(1) >= config_.max_pending_requests) {
    --*pending_;
    return writer->Send(ErrorResponse(Unavailable(
        fmt::format("The server is at its limit of {} requests at a time; try again later.",
                    config_.max_pending_requests))));
  }
  Ticket ticket(nullptr, [pending = pending_](void*) { --*pending; });
  const auto handler = route->worker_handler;
  pool_.Submit([this, handler, request = std::make_shared<HttpRequest>(std::move(request)),
                writer = std::move(writer), current = std::move(current),
                ticket = std::move(ticket)]() mutable {
    if (writer->closed()) return;
    (this->*handler)(*request, std::move(writer), std::move(current), std::move(ticket));
  });
}

// --- Quick routes
// ------------------------------------------------------------------------------------------------------

void Api::Health(const HttpRequest&, Writer writer) {
  const Model current = model();
  HttpResponse response;
  if (current == nullptr || draining_ || !current->engine->healthy()) {
    response.status = 503;
    response.body = current == nullptr ? R"({"status":"loading"})"
                    : draining_        ? R"({"status":"draining"})"
                                       : R"({"status":"unhealthy"})";
  } else {
    response.body = R"({"status":"ok"})";
  }
  writer->Send(std::move(response));
}

void Api::Ping(const HttpRequest& request, Writer writer) {
  Health(request, std::move(writer));
}

void Api::Version(const HttpRequest&, Writer writer) {
  std::string body = R"({"version":)";
  json::AppendString(body, config_.version);
  writer->Send(JsonResponse(body + "}"));
}

void Api::Load(const HttpRequest&, Writer writer) {
  writer->Send(JsonResponse(fmt::format(
      R"({{"server_load":{}}})", config_.enable_server_load_tracking ? pending_->load() : 0)));
}

void Api::ShowMetrics(const HttpRequest&, Writer writer) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  const Model current = model();
  response.body = metrics_->Text(current != nullptr && current->engine->num_unfinished() == 0);
  writer->Send(std::move(response));
}

void Api::Models(const HttpRequest&, Writer writer) {
  const Model current = model();
  if (current == nullptr)
    return writer->Send(ErrorResponse(Unavailable("The model is still being loaded.")));
  std::string body = R"({"object":"list","data":[)";
  for (size_t i = 0; i < current->names.size(); ++i) {
    if (i > 0) body.push_back(',');
    AppendModelCard(body, *current, current->names[i]);
  }
  writer->Send(JsonResponse(body + "]}"));
}

void Api::OneModel(const HttpRequest& request, Writer writer) {
  const Model current = model();
  if (current == nullptr)
    return writer->Send(ErrorResponse(Unavailable("The model is still being loaded.")));
  const std::string name(WithoutRoot(request.path).substr(kModelsPrefix.size()));
  if (ApiStatus known = current->CheckName(name); !known)
    return writer->Send(ErrorResponse(known.error()));
  std::string body;
  AppendModelCard(body, *current, name);
  writer->Send(JsonResponse(std::move(body)));
}

void Api::TokenizerInfo(const HttpRequest&, Writer writer) {
  const Model current = model();
  if (current == nullptr || !config_.enable_tokenizer_info_endpoint)
    return writer->Send(DetailResponse(404, "Not Found"));
  json::Value info = current->tokenizer->config();
  if (!info.is_object()) info = json::Value(json::Value::Object{});
  std::erase_if(info.as_object(), [](const json::Value::Member& member) {
    return member.first == "extra_special_tokens" && !IsTruthy(&member.second);
  });
  if (const json::Value* added = info.Find("added_tokens_decoder");
      added != nullptr && added->is_object()) {
    json::Value flat{json::Value::Object{}};
    for (const auto& [id, token] : added->as_object()) {
      const json::Value* content = token.Find("content");
      flat.Set(id, content != nullptr ? *content : token);
    }
    info.Set("added_tokens_decoder", std::move(flat));
  }
  if (const ChatTemplate* chat_template = current->templates.Select(false)) {
    info.Set("chat_template", chat_template->source());
  }
  info.Set("truncation_side", "left");
  info.Set("name_or_path", config_.model_argument);
  info.Set("is_local", true);
  info.Set("local_files_only", true);
  info.Set("backend", "tokenizers");
  writer->Send(JsonResponse(json::Write(info)));
}

void Api::ScaleOut(const HttpRequest&, Writer writer) {
  ApiError error;
  error.status = 403;
  error.type = "PermissionDeniedError";
  error.message =
      "Scale-out endpoints are not part of this server; use /v1/completions or "
      "/v1/chat/completions.";
  writer->Send(ErrorResponse(error));
}

void Api::NotServed(const HttpRequest& request, Writer writer) {
  ApiError error;
  error.status = 404;
  error.type = "NotFoundError";
  error.message =
      fmt::format("{} is not served; use /v1/chat/completions.", WithoutRoot(request.path));
  writer->Send(ErrorResponse(error));
}

// --- Routes with a body
// ------------------------------------------------------------------------------------------------

void Api::Completions(const HttpRequest& request, Writer writer, Model model, Ticket ticket) {
  ApiResult<json::Value> body = ParseRequestBody(request);
  if (!body) return writer->Send(ErrorResponse(body.error()));
  const ApiStatus status =
      RunCompletions(request, *body, writer, std::move(model), std::move(ticket));
  if (!status) writer->Send(ErrorResponse(status.error()));
}

void Api::Chat(const HttpRequest& request, Writer writer, Model model, Ticket ticket) {
  ApiResult<json::Value> body = ParseRequestBody(request);
  if (!body) return writer->Send(ErrorResponse(body.error()));
  const ApiStatus status = RunChat(request, *body, writer, std::move(model), std::move(ticket));
  if (!status) writer->Send(ErrorResponse(status.error()));
}

void Api::Invocations(const HttpRequest& request, Writer writer, Model model, Ticket ticket) {
  ApiResult<json::Value> body = ParseRequestBody(request);
  if (!body) return writer->Send(ErrorResponse(body.error()));
  const bool is_chat = body->Find("messages") != nullptr;
  const ApiStatus status =
      is_chat ? RunChat(request, *body, writer, std::move(model), std::move(ticket))
              : RunCompletions(request, *body, writer, std::move(model), std::move(ticket));
  if (!status) writer->Send(ErrorResponse(status.error()));
}

ApiStatus Api::RunCompletions(const HttpRequest& request, const json::Value& body, Writer writer,
                              Model model, Ticket ticket) {
  API_ASSIGN_OR_RETURN(CompletionRequest decoded, DecodeCompletionRequest(body, config_));
  SamplingFields& fields = decoded.sampling;
  API_RETURN_IF_ERROR(model->CheckName(fields.model));
  const bool drop_output = decoded.echo && fields.max_tokens == 0;
  if (drop_output) fields.max_tokens = 1;
  if (decoded.echo && !fields.prompt_logprobs) fields.prompt_logprobs = fields.logprobs;
  API_ASSIGN_OR_RETURN(const SamplingParams sampling, ResolveSampling(fields, *model));
  const size_t num_prompts = decoded.texts.size() + decoded.ids.size();
  if (num_prompts * static_cast<size_t>(fields.n) > 16384) {
    return BadParameter(
        fmt::format("{} prompts with n={} are more than 16384 answers", num_prompts, fields.n), "n",
        std::to_string(fields.n));
  }

  CompletionAnswerOptions options;
  options.identity = MakeIdentity("cmpl-", request, fields, *model);
  GenerationRequest generation =
      MakeGeneration(options.identity, fields, config_.priority_scheduling);
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
    if (decoded.echo) {
      info.text = decoded.texts.empty() ? model->tokenizer->Decode(prompt.tokens, false)
                                        : std::move(prompt.text);
    }
    options.prompts.push_back(std::move(info));
    generation.prompts.push_back(std::move(prompt));
  }
  options.model = model;
  options.n = generation.n;
  options.stream = fields.stream;
  options.include_usage = fields.include_usage;
  options.continuous_usage = fields.continuous_usage_stats;
  options.echo = decoded.echo;
  options.drop_output = drop_output;
  options.return_token_ids = fields.return_token_ids;
  options.tokens_as_ids = fields.return_tokens_as_token_ids;
  options.logprobs = sampling.logprobs;
  options.prompt_logprobs = sampling.prompt_logprobs;
  if (config_.log_requests) {
    LOG_INFO("server", "{}: {} prompts, {} tokens in the first, n={}", generation.id, num_prompts,
             options.prompts[0].tokens.size(), fields.n);
  }
  auto answer = MakeCompletionAnswer(std::move(options), writer);
  Generation::Start(std::move(model), &pool_, std::move(writer), std::move(generation),
                    std::move(answer), std::move(ticket));
  return {};
}

ApiStatus Api::RunChat(const HttpRequest& request, const json::Value& body, Writer writer,
                       Model model, Ticket ticket) {
  API_ASSIGN_OR_RETURN(ChatRequest decoded, DecodeChatRequest(body, config_));
  SamplingFields& fields = decoded.sampling;
  const ConversationFields& conversation = decoded.conversation;
  API_RETURN_IF_ERROR(model->CheckName(fields.model));
  API_ASSIGN_OR_RETURN(const SamplingParams sampling, ResolveSampling(fields, *model));
  API_ASSIGN_OR_RETURN(std::string text, RenderConversation(conversation, *model));

  ChatAnswerOptions options;
  if (decoded.return_prompt_text) options.prompt_text = text;
  API_ASSIGN_OR_RETURN(
      Prompt prompt,
      PromptFromText(std::move(text), conversation.add_special_tokens, fields, *model));
  options.identity = MakeIdentity("chatcmpl-", request, fields, *model);
  GenerationRequest generation =
      MakeGeneration(options.identity, fields, config_.priority_scheduling);
  SamplingParams params = sampling;
  API_ASSIGN_OR_RETURN(
      params.max_tokens,
      ResolveMaxTokens(fields, *model, static_cast<int64_t>(prompt.tokens.size())));
  generation.sampling.push_back(std::move(params));

  const json::Value& last = conversation.messages.as_array().back();
  options.role =
      conversation.add_generation_prompt ? config_.response_role : last.Find("role")->as_string();
  if (decoded.echo && last.Find("role")->as_string() == options.role) {
    const json::Value* content = last.Find("content");
    if (content != nullptr && content->is_string()) options.echo = content->as_string();
  }
  options.model = model;
  options.n = generation.n;
  options.stream = fields.stream;
  options.include_usage = fields.include_usage;
  options.continuous_usage = fields.continuous_usage_stats;
  options.return_token_ids = fields.return_token_ids;
  options.tokens_as_ids = fields.return_tokens_as_token_ids;
  options.logprobs = sampling.logprobs;
  options.prompt_logprobs = sampling.prompt_logprobs;
  options.prompt_tokens = prompt.tokens;
  generation.prompts.push_back(std::move(prompt));
  if (config_.log_requests) {
    LOG_INFO("server", "{}: chat, {} tokens, n={}", generation.id, options.prompt_tokens.size(),
             fields.n);
  }
  auto answer = MakeChatAnswer(std::move(options), writer);
  Generation::Start(std::move(model), &pool_, std::move(writer), std::move(generation),
                    std::move(answer), std::move(ticket));
  return {};
}

void Api::Tokenize(const HttpRequest& request, Writer writer, Model model, Ticket) {
  ApiResult<json::Value> body = ParseRequestBody(request);
  if (!body) return writer->Send(ErrorResponse(body.error()));
  ApiResult<std::string> answer = RunTokenize(*body, *model);
  writer->Send(answer ? JsonResponse(*std::move(answer)) : ErrorResponse(answer.error()));
}

void Api::Detokenize(const HttpRequest& request, Writer writer, Model model, Ticket) {
  ApiResult<json::Value> body = ParseRequestBody(request);
  if (!body) return writer->Send(ErrorResponse(body.error()));
  ApiResult<std::string> answer = RunDetokenize(*body, *model);
  writer->Send(answer ? JsonResponse(*std::move(answer)) : ErrorResponse(answer.error()));
}

}  // namespace sluice
