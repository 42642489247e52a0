#include "server/api/api.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "server/api/request_body.h"

namespace sluice {

namespace {

// Parsing, rendering and encoding a body of this size takes milliseconds; of the largest, seconds.
constexpr size_t kLargeBody = size_t{256} << 10;

}  // namespace

struct Api::Route {
  RouteSpec spec;
  void (Api::*inline_handler)(const HttpRequest&, Writer) = nullptr;
  void (Api::*worker_handler)(const HttpRequest&, Writer, Model) = nullptr;
};

template <ApiStatus (Api::*handler)(const HttpRequest&, const json::Value&, Api::Writer,
                                    Api::Model)>
// NOLINTNEXTLINE(performance-unnecessary-value-param): the signature is that of Route's handlers
void Api::WithBody(const HttpRequest& request, Writer writer, Model model) {
  const ApiResult<json::Value> body = ParseRequestBody(request);
  const ApiStatus status = body ? (this->*handler)(request, *body, writer, std::move(model))
                                : ApiStatus(tl::unexpected<ApiError>(body.error()));
  if (!status) writer->Send(Refusal(status.error()));
}

std::span<const Api::Route> Api::Routes() {
  using enum RouteGate;
  static const Route routes[] = {
      {{"/health", {"GET"}, kAlways, "Whether requests are served.", "", "Health"}, &Api::Health},
      {{"/ping", {"GET", "POST"}, kAlways, "As /health.", "", "Health"}, &Api::Health},
      {{"/version", {"GET"}, kAlways, "The version of this server.", "", "Version"}, &Api::Version},
      {{"/load", {"GET"}, kAlways, "How many requests are in progress.", "", "Load"}, &Api::Load},
      {{"/metrics",
        {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"},
        kAlways,
        "Metrics in Prometheus' text format.",
        "",
        "text"},
       &Api::ShowMetrics},
      {{"/prometheus/metrics", {"GET"}, kTrtllm, "As /metrics of vLLM.", "", "text"},
       &Api::Prometheus},
      {{"/v1/models", {"GET"}, kAlways, "The names of the model.", "", "ModelList"}, &Api::Models},
      {{"/v1/models/{model_id}", {"GET"}, kNotVllm, "One of them.", "", "ModelCard"},
       &Api::OneModel},
      {{"/tokenizer_info", {"GET"}, kTokenizerInfo, "The tokenizer's settings.", "", ""},
       &Api::TokenizerInfo},
      {{"/openapi.json", {"GET", "HEAD"}, kDocs, "This description.", "", ""}, &Api::OpenApi},
      {{"/docs", {"GET", "HEAD"}, kDocs, "The routes as a page.", "", "html"}, &Api::Docs},
      {{"/redoc", {"GET", "HEAD"}, kDocs, "As /docs.", "", "html"}, &Api::Docs},
      {{"/v1/completions",
        {"POST"},
        kAlways,
        "Continue prompts.",
        "CompletionRequest",
        "Completion"},
       nullptr,
       &Api::WithBody<&Api::Completions>},
      {{"/v1/chat/completions",
        {"POST"},
        kAlways,
        "Answer a conversation.",
        "ChatRequest",
        "ChatCompletion"},
       nullptr,
       &Api::WithBody<&Api::Chat>},
      {{"/v1/chat/completions/batch",
        {"POST"},
        kAlways,
        "Answer several conversations.",
        "BatchChatRequest",
        "ChatCompletion"},
       nullptr,
       &Api::WithBody<&Api::BatchChat>},
      {{"/invocations",
        {"POST"},
        kAlways,
        "As /v1/chat/completions with messages, else as /v1/completions.",
        "InvocationRequest",
        ""},
       nullptr,
       &Api::WithBody<&Api::Invocations>},
      {{"/tokenize",
        {"POST"},
        kAlways,
        "Token ids of a text or a conversation.",
        "TokenizeRequest",
        "Tokens"},
       nullptr,
       &Api::WithBody<&Api::Tokenize>},
      {{"/detokenize", {"POST"}, kAlways, "The text of token ids.", "DetokenizeRequest", "Text"},
       nullptr,
       &Api::WithBody<&Api::Detokenize>},
      {{"/health_generate", {"GET"}, kTrtllm, "Computes one token.", "", "text"},
       nullptr,
       &Api::HealthGenerate},

      // Refused by name.
      {{"/v1/completions/render", {"POST"}, kAlways, "", "", ""}, nullptr, &Api::Refused},
      {{"/v1/chat/completions/render", {"POST"}, kAlways, "", "", ""}, nullptr, &Api::Refused},
      {{"/inference/v1/generate", {"POST"}, kAlways, "", "", ""}, nullptr, &Api::Refused},
      {{"/v1/responses", {"POST"}, kAlways, "", "", ""}, nullptr, &Api::Refused},
      {{"/v1/responses/{response_id}/cancel", {"POST"}, kAlways, "", "", ""}, &Api::StoredResponse},
      {{"/v1/responses/{response_id}", {"GET"}, kAlways, "", "", ""}, &Api::StoredResponse},
      {{"/v1/messages", {"POST"}, kAlways, "", "", ""}, nullptr, &Api::Refused},
      {{"/v1/messages/count_tokens", {"POST"}, kAlways, "", "", ""}, nullptr, &Api::Refused},
      {{"/generative_scoring", {"POST"}, kAlways, "", "", ""}, nullptr, &Api::Refused},
      {{"/scale_elastic_ep", {"POST"}, kAlways, "", "", ""}, nullptr, &Api::Refused},

      // For development.
      {{"/server_info", {"GET"}, kDev, "Settings, environment, machine.", "", ""},
       &Api::ServerInfo},
      {{"/reset_prefix_cache", {"POST"}, kDev, "Empties the prefix cache.", "", ""},
       nullptr,
       &Api::ResetCache},
      {{"/reset_mm_cache", {"POST"}, kDev, "Nothing: there is no such cache.", "", "text"},
       nullptr,
       &Api::ResetNothing},
      {{"/reset_encoder_cache", {"POST"}, kDev, "Nothing: there is no such cache.", "", "text"},
       nullptr,
       &Api::ResetNothing},
      {{"/pause", {"POST"}, kDev, "Holds new requests back.", "", ""}, nullptr, &Api::Pause},
      {{"/resume", {"POST"}, kDev, "Lets them go.", "", ""}, nullptr, &Api::Resume},
      {{"/is_paused", {"GET"}, kDev, "Whether they are held back.", "", ""}, &Api::IsPaused},
      {{"/sleep",
        {"POST"},
        kDev,
        "Ends what runs, empties the cache, holds requests back.",
        "",
        ""},
       nullptr,
       &Api::Sleep},
      {{"/wake_up", {"POST"}, kDev, "The end of /sleep.", "", ""}, nullptr, &Api::WakeUp},
      {{"/is_sleeping", {"GET"}, kDev, "Whether it sleeps.", "", ""}, &Api::IsSleeping},
      {{"/abort_requests", {"POST"}, kDev, "Ends requests.", "", ""}, nullptr, &Api::AbortRequests},
      {{"/get_world_size", {"GET"}, kDev, "How many devices share the model.", "", ""},
       &Api::WorldSize},
      {{"/collective_rpc", {"POST"}, kDev, "", "", ""}, nullptr, &Api::CollectiveRpc},
  };
  return routes;
}

namespace {

// Time does not depend on how much of the key is right.
bool SameKey(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^
                  static_cast<unsigned char>(key.empty() ? 0 : key[i % key.size()]);
  }
  return difference == 0;
}

// The way back of a request that counts as pending: until its answer is complete, or nobody is left
// who could give one. Whoever has the answer finds the request counted no more.
class PendingWriter : public ResponseWriter {
 public:
  PendingWriter(std::shared_ptr<ResponseWriter> writer,
                std::shared_ptr<std::atomic<int64_t>> pending)
      : writer_(std::move(writer)), pending_(std::move(pending)) {}
  ~PendingWriter() override { Leave(); }

  void Send(HttpResponse response) override {
    Leave();
    writer_->Send(std::move(response));
  }
  void StartStream(HttpResponse response) override { writer_->StartStream(std::move(response)); }
  void WriteChunk(std::string_view data) override { writer_->WriteChunk(data); }
  void EndStream() override {
    Leave();
    writer_->EndStream();
  }
  bool backlogged() const override { return writer_->backlogged(); }
  bool closed() const override { return writer_->closed(); }
  void SetCallbacks(std::function<void()> on_closed, std::function<void()> on_writable) override {
    writer_->SetCallbacks(std::move(on_closed), std::move(on_writable));
  }

 private:
  void Leave() {
    if (pending_ != nullptr) --*std::exchange(pending_, nullptr);
  }

  const std::shared_ptr<ResponseWriter> writer_;
  std::shared_ptr<std::atomic<int64_t>> pending_;
};

ApiError Unavailable(std::string message) {
  ApiError error;
  error.status = 503;
  error.type = "ServiceUnavailableError";
  error.message = std::move(message);
  return error;
}

}  // namespace

Api::Api(const ServerConfig& config, Metrics* metrics)
    : config_(config), metrics_(metrics), cors_(config), pool_(config.worker_threads) {
  if (config.sse_keep_alive_seconds > 0) silence_thread_ = std::thread([this] { WatchSilence(); });
}

Api::~Api() {
  Stop();
}

void Api::Stop() {
  {
    std::lock_guard lock(silence_mutex_);
    stopping_ = true;
  }
  silence_wake_.notify_all();
  if (silence_thread_.joinable()) silence_thread_.join();
  pool_.Stop();
}

void Api::WatchSilence() {
  const auto interval = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(config_.sse_keep_alive_seconds));
  std::unique_lock lock(silence_mutex_);
  while (!stopping_) {
    silence_wake_.wait_for(lock, std::max<std::chrono::steady_clock::duration>(
                                     interval / 8, std::chrono::milliseconds(20)));
    lock.unlock();
    active_->KeepAlive(interval);
    lock.lock();
  }
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
  if (path == "/metrics/") path = "/metrics";
  for (const Route& route : Routes()) {
    if (Matches(route.spec, path) && IsOpen(route.spec.gate, config_)) return &route;
  }
  return nullptr;
}

HttpResponse Api::NotFound(std::string_view path) const {
  std::vector<const RouteSpec*> closed;
  for (const Route& route : Routes()) {
    if (!IsOpen(route.spec.gate, config_)) closed.push_back(&route.spec);
  }
  return DetailResponse(404, NotFoundDetail(path, closed));
}

std::string_view Api::RouteOf(std::string_view path) const {
  const Route* route = FindRoute(WithoutRoot(path));
  return route == nullptr ? "none" : route->spec.path;
}

std::vector<const RouteSpec*> Api::OpenRoutes() const {
  std::vector<const RouteSpec*> open;
  for (const Route& route : Routes()) {
    if (IsOpen(route.spec.gate, config_)) open.push_back(&route.spec);
  }
  return open;
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
  const std::string_view given =
      space == std::string::npos ? "" : std::string_view(*header).substr(space + 1);
  bool known = false;
  for (const std::string& key : config_.api_keys) known |= !key.empty() && SameKey(given, key);
  return known && AsciiLower(header->substr(0, space)) == "bearer";
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
  const std::string_view path = WithoutRoot(request.path);
  const Route* route = FindRoute(path);
  if (route == nullptr) {
    if (path.size() > 1 && path.ends_with('/') &&
        FindRoute(path.substr(0, path.size() - 1)) != nullptr) {
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
    return writer->Send(NotFound(path));
  }
  const std::vector<std::string_view>& methods = route->spec.methods;
  if (!methods.empty() &&
      std::find(methods.begin(), methods.end(), request.method) == methods.end()) {
    HttpResponse response = DetailResponse(405, "Method Not Allowed");
    response.headers.push_back({"allow", fmt::format("{}", fmt::join(methods, ", "))});
    return writer->Send(std::move(response));
  }
  if (route->inline_handler != nullptr)
    return (this->*route->inline_handler)(request, std::move(writer));

  Model current = model();
  if (draining_) return writer->Send(Refusal(Unavailable("The server is shutting down.")));
  if (current == nullptr)
    return writer->Send(Refusal(Unavailable("The model is still being loaded.")));
  if (pending_->fetch_add(1) >= config_.max_pending_requests) {
    --*pending_;
    metrics_->OnRejected();
    return writer->Send(Refusal(Unavailable(
        fmt::format("The server is at its limit of {} requests at a time; try again later.",
                    config_.max_pending_requests))));
  }
  writer = std::make_shared<PendingWriter>(std::move(writer), pending_);
  const auto handler = route->worker_handler;
  const bool is_long = request.body.size() > kLargeBody;
  pool_.Submit(
      [this, handler, request = std::make_shared<HttpRequest>(std::move(request)),
       writer = std::move(writer), current = std::move(current)]() mutable {
        if (writer->closed()) return;
        (this->*handler)(*request, std::move(writer), std::move(current));
      },
      is_long);
}

}  // namespace sluice
