#include "server/api/dispatcher.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "server/api/common/request_body.h"
#include "server/api/context/authorization.h"
#include "server/api/guard/pending_writer.h"
#include "server/api/request/prompt_images.h"

namespace sluice {
namespace {

// Whether errors at `path` have the shape of Anthropic's API.
bool IsOfMessages(std::string_view path) {
  constexpr std::string_view kMessages = "/v1/messages";
  return path.starts_with(kMessages) &&
         (path.size() == kMessages.size() || path[kMessages.size()] == '/');
}

// Returns the response to an error that is found before the route is called. `framework`: the
// response of vLLM's web framework, used in vLLM's dialect and outside Anthropic's API.
HttpResponse EarlyError(std::string_view path, ApiDialect dialect, std::string message,
                        HttpResponse framework) {
  if (dialect == ApiDialect::kVllm || !IsOfMessages(path)) return framework;
  ApiError error;
  error.status = framework.status;
  error.message = std::move(message);
  return AnthropicErrorResponse(error, dialect);
}

// A request that a worker must answer. The task that works on it keeps it alive.
struct WorkerRequest {
  const Route* route = nullptr;
  HttpRequest request;
  std::string_view path;  // path of `request`, without --root-path
  std::shared_ptr<ResponseWriter> client;
  std::shared_ptr<const ModelContext> model;
  std::shared_ptr<ClientLimits::Ticket> ticket;
  size_t bytes = 0;  // size of the body as received
  json::Value body = nullptr;
  std::shared_ptr<const FetchedMedia> media = nullptr;

  RouteCall Call(ApiContext& api) {
    return {api, *route, request, path, client, model, ticket, media};
  }
};

// If the body contains images, runs `next` as a long task, because a small file may contain a large
// image. Images given by URL are fetched first, without a worker. Returns false if the caller must
// run `next` itself.
bool DeferImages(ApiContext& api, const std::shared_ptr<WorkerRequest>& work,
                 std::function<void()> next) {
  constexpr size_t kLong = WorkerPool::kLongBytes + 1;
  if (work->model->image_processor == nullptr) return false;
  BodyImages images = FindBodyImages(work->body);
  if (!images.any) return false;
  const bool fetches = !images.http_urls.empty() && !api.config.media.fetch.hosts.empty() &&
                       static_cast<int64_t>(images.http_urls.size()) <= work->model->max_images;
  if (!fetches) {
    if (work->bytes >= kLong) return false;
    api.pool.Submit(std::move(next), kLong);
    return true;
  }
  const std::shared_ptr<MemoryLease> lease = work->request.memory;
  const uint64_t base = lease == nullptr ? 0 : lease->bytes();
  api.fetcher.Submit(
      std::move(images.http_urls),
      [lease, base](uint64_t bytes) { return lease == nullptr || lease->TryResize(base + bytes); },
      [&api, work, next = std::move(next)](FetchedMedia fetched) {
        work->media = std::make_shared<const FetchedMedia>(std::move(fetched));
        api.pool.Submit(next, kLong);
      });
  return true;
}

// Whether the model answers requests to this route. The other routes change the server's state.
bool AsksForAnswer(const Route& route) {
  return route.with_body != nullptr && route.gate != RouteGate::kDev &&
         route.gate != RouteGate::kWeights && route.gate != RouteGate::kRuntimeLora;
}

// Runs `work`. An exception becomes the error for the client.
template <typename Work>
ApiStatus Guarded(const Route& route, const Work& work) {
  try {
    return work();
  } catch (...) {
    return tl::unexpected<ApiError>(CaughtApiError(route.path));
  }
}

}  // namespace

Dispatcher::Dispatcher(const ServerConfig& config, std::shared_ptr<const ApiKeys> keys,
                       std::shared_ptr<SpanExporter> exporter, Metrics* metrics,
                       SharedByModels shared)
    : api_(config, std::move(keys), std::move(exporter), metrics, std::move(shared)),
      cors_(config),
      keep_alive_(config.sse_keep_alive_seconds, api_.active),
      idle_sleep_(config.enable_sleep_mode ? config.sleep_idle_seconds : 0, api_.active, api_.sleep,
                  [this] { return api_.model(); }) {}

Status Dispatcher::OpenResponses() {
  if (api_.config.response_store.empty()) return {};
  return api_.responses->KeepIn(api_.config.response_store);
}

std::weak_ptr<const ModelContext> Dispatcher::Detach() {
  const std::shared_ptr<const ModelContext> model = api_.model();
  api_.set_model(nullptr);
  return model;
}

void Dispatcher::BeginLeaving() {
  api_.leaving = true;
}

void Dispatcher::BeginDrain() {
  api_.draining = true;
  api_.active->Drain(Error{ErrorCode::kUnavailable, kServerIsShuttingDown, ""});
}

void Dispatcher::Stop() {
  keep_alive_.Stop();
  api_.fetcher.Stop();
  idle_sleep_.Stop();
  api_.responses->Stop();
  api_.pool.Stop();
  if (const auto model = api_.model()) model->constraints->Stop();
}

std::string_view Dispatcher::WithoutRoot(std::string_view path) const {
  std::string_view root = api_.config.root_path;
  while (root.ends_with('/')) root.remove_suffix(1);
  if (root.empty() || !path.starts_with(root)) return path;
  const std::string_view rest = path.substr(root.size());
  return rest.starts_with('/') ? rest : path;
}

std::string_view Dispatcher::RouteOf(std::string_view path) const {
  const Route* route = FindRoute(WithoutRoot(path), api_.config);
  return route == nullptr ? "none" : route->path;
}

std::optional<HttpResponse> Dispatcher::CheckHead(const HttpRequest& head) {
  const std::string_view path = WithoutRoot(head.path);
  if (Cors::IsPreflight(head) ||
      IsAuthorized(head, path, FindRoute(path, api_.config), api_.config, *api_.keys))
    return std::nullopt;
  return Unauthorized(path);
}

HttpResponse Dispatcher::Unauthorized(std::string_view path) const {
  HttpResponse response;
  response.status = 401;
  response.body = R"({"error":"Unauthorized"})";
  return EarlyError(path, api_.config.dialect,
                    "expected an API key as x-api-key, or as Authorization: Bearer",
                    std::move(response));
}

HttpResponse Dispatcher::ErrorOf(std::string_view path, const ApiError& error) const {
  return IsOfMessages(path) ? AnthropicErrorResponse(error, api_.config.dialect)
                            : ErrorResponse(error, api_.config.dialect);
}

std::string Dispatcher::ErrorBody(std::string_view target, int status, std::string_view type,
                                  std::string_view message) const {
  if (!IsOfMessages(WithoutRoot(target.substr(0, target.find('?')))))
    return HttpHandler::ErrorBody(target, status, type, message);
  ApiError error;
  error.status = status;
  error.type = type;
  error.message = message;
  return AnthropicErrorBody(error, api_.config.dialect);
}

std::vector<HttpHeader> Dispatcher::CommonHeaders(const HttpRequest& request, int status) {
  std::vector<HttpHeader> headers;
  if (status != 401 && !Cors::IsPreflight(request)) headers = cors_.Headers(request);
  if (status != 401 && api_.limits->any()) {
    const Route* route = FindRoute(WithoutRoot(request.path), api_.config);
    if (route != nullptr && route->with_body != nullptr)
      api_.limits->AppendHeaders(api_.identity->Of(request), headers);
  }
  if (!api_.config.simulated.empty())
    headers.push_back({"x-sluice-simulated", api_.config.simulated});
  if (api_.config.enable_request_id_headers) {
    const std::string* given = request.Header("x-request-id");
    headers.push_back(
        {"x-request-id", given != nullptr && !given->empty() ? *given : RandomHex(32)});
  }
  return headers;
}

// Redirects a path with an additional '/' at the end; other paths get 404.
HttpResponse Dispatcher::NotFound(const HttpRequest& request, std::string_view path) const {
  if (path.size() < 2 || !path.ends_with('/') ||
      FindRoute(path.substr(0, path.size() - 1), api_.config) == nullptr)
    return EarlyError(path, api_.config.dialect, fmt::format("there is no {}", path.substr(0, 100)),
                      DetailResponse(404, NotFoundDetail(path, api_.config)));
  HttpResponse redirect;
  redirect.status = 307;
  redirect.content_type.clear();
  redirect.headers.push_back(
      {"location",
       fmt::format(
           "{}://{}{}{}{}", api_.config.tls.enabled() ? "https" : "http", request.host,
           PercentEncodeUnsafe(std::string_view(request.path).substr(0, request.path.size() - 1)),
           request.query.empty() ? "" : "?", request.query)});
  return redirect;
}

std::optional<HttpResponse> Dispatcher::RefuseEncodedBody(const HttpRequest& request,
                                                          std::string_view path) const {
  const std::string* encoding = request.Header("content-encoding");
  if (encoding == nullptr || request.body.empty()) return std::nullopt;
  const std::string word = AsciiLower(AsciiTrim(*encoding, " \t"));
  if (word.empty() || word == "identity") return std::nullopt;
  ApiError error;
  error.status = 415;
  error.type = "UnsupportedMediaTypeError";
  error.param = "Content-Encoding";
  error.message = fmt::format(
      "Content-Encoding: expected none or identity, found '{}'; send the body without an encoding.",
      encoding->substr(0, 100));
  HttpResponse response = ErrorOf(path, error);
  response.headers.push_back({"accept-encoding", "identity"});
  return response;
}

void Dispatcher::Handle(HttpRequest request, std::shared_ptr<ResponseWriter> client) {
  if (std::optional<HttpResponse> preflight = cors_.Preflight(request))
    return client->Send(*std::move(preflight));
  const std::string_view path = WithoutRoot(request.path);
  const Route* route = FindRoute(path, api_.config);
  if (route == nullptr) return client->Send(NotFound(request, path));
  std::vector<std::string_view> methods = route->methods;
  const auto takes = [&](std::string_view method) {
    return std::find(methods.begin(), methods.end(), method) != methods.end();
  };
  if (takes("GET") && !takes("HEAD")) methods.emplace_back("HEAD");
  if (!takes(request.method)) {
    HttpResponse response =
        EarlyError(path, api_.config.dialect,
                   fmt::format("expected {}, found {}", fmt::join(methods, " or "), request.method),
                   DetailResponse(405, "Method Not Allowed"));
    response.headers.push_back({"allow", fmt::format("{}", fmt::join(methods, ", "))});
    return client->Send(std::move(response));
  }
  // The connection omits the body of the response.
  if (request.method == "HEAD") request.method = "GET";
  if (std::optional<HttpResponse> refusal = RefuseEncodedBody(request, path))
    return client->Send(*std::move(refusal));
  if (route->on_io_thread == nullptr)
    return HandleOnWorker(*route, std::move(request), std::move(client));
  const RouteCall call{api_, *route, request, path, client, api_.model()};
  if (const ApiStatus status = route->on_io_thread(call); !status)
    client->Send(ErrorOf(path, status.error()));
}

void Dispatcher::HandleOnWorker(const Route& route, HttpRequest request,
                                std::shared_ptr<ResponseWriter> client) {
  const std::string_view path = WithoutRoot(request.path);
  std::shared_ptr<const ModelContext> model = api_.model();
  if (api_.draining) return client->Send(ErrorOf(path, ServiceUnavailable(kServerIsShuttingDown)));
  if (model == nullptr && !route.without_model)
    return client->Send(ErrorOf(path, ModelIsLoading()));
  if (api_.config.refuses_while_asleep && route.with_body != nullptr && api_.sleep->sleeping() &&
      !api_.sleep->sleeps_until_request()) {
    return client->Send(ErrorOf(
        path, ServiceUnavailable("The model sleeps until POST /wake_up; try again later.")));
  }
  if (api_.pending->fetch_add(1) >= api_.config.max_pending_requests) {
    --*api_.pending;
    api_.metrics->OnRejected();
    return client->Send(ErrorOf(
        path, ServiceUnavailable(fmt::format(
                  "The server has reached its limit of {} concurrent requests; try again later.",
                  api_.config.max_pending_requests))));
  }
  std::shared_ptr<ClientLimits::Ticket> ticket;
  if (route.with_body != nullptr && api_.limits->any()) {
    auto entered = api_.limits->Enter(api_.identity->Of(request));
    if (!entered) {
      --*api_.pending;
      return client->Send(ErrorOf(path, entered.error()));
    }
    ticket = *std::move(entered);
  }
  const size_t size = request.body.size();
  if (model != nullptr && model->on_arrival && AsksForAnswer(route))
    model->on_arrival(path, request.body);
  auto work = std::make_shared<WorkerRequest>();
  work->route = &route;
  work->client = std::make_shared<PendingWriter>(std::move(client), api_.pending, ticket);
  work->request = std::move(request);
  work->path = WithoutRoot(work->request.path);
  work->model = std::move(model);
  work->ticket = std::move(ticket);
  work->bytes = size;
  api_.pool.Submit(
      [this, work] {
        if (work->client->closed()) return;
        const Route& route = *work->route;
        const auto answer = [this, work](const ApiStatus& status) {
          if (!status) work->client->Send(ErrorOf(work->path, status.error()));
        };
        answer(Guarded(route, [&]() -> ApiStatus {
          if (route.on_worker != nullptr) return route.on_worker(work->Call(api_));
          API_ASSIGN_OR_RETURN(work->body, ParseRequestBody(work->request));
          std::string().swap(work->request.body);
          api_.unknown_fields.Warn(work->body);
          const auto handle = [this, work] {
            return work->route->with_body(work->Call(api_), work->body);
          };
          const bool later = DeferImages(api_, work, [work, answer, handle] {
            if (!work->client->closed()) answer(Guarded(*work->route, handle));
          });
          return later ? ApiStatus() : handle();
        }));
      },
      size);
}

}  // namespace sluice
