#include "server/api/dispatcher.h"

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "server/api/authorization.h"
#include "server/api/pending_writer.h"
#include "server/api/request_body.h"

namespace sluice {
namespace {

constexpr const char* kShuttingDown = "The server is shutting down.";

// Whether its errors have the shape of Anthropic's API.
bool IsOfMessages(std::string_view path) {
  constexpr std::string_view kMessages = "/v1/messages";
  return path.starts_with(kMessages) &&
         (path.size() == kMessages.size() || path[kMessages.size()] == '/');
}

// An error that is found before the route is called. What vLLM's web framework answers under that
// name is `framework`.
HttpResponse EarlyError(std::string_view path, ApiDialect dialect, std::string message,
                        HttpResponse framework) {
  if (dialect == ApiDialect::kVllm || !IsOfMessages(path)) return framework;
  ApiError error;
  error.status = framework.status;
  error.message = std::move(message);
  return AnthropicErrorResponse(error, dialect);
}

// Returns what the client is to get, if it is an error.
ApiStatus CallOnWorker(const Route& route, const RouteCall& call) {
  try {
    if (route.on_worker != nullptr) return route.on_worker(call);
    API_ASSIGN_OR_RETURN(const json::Value body, ParseRequestBody(call.request));
    std::string().swap(call.request.body);
    call.api.unknown_fields.Warn(body);
    return route.with_body(call, body);
  } catch (const std::bad_alloc&) {
    return tl::unexpected<ApiError>(OutOfMemory());
  }
}

}  // namespace

Dispatcher::Dispatcher(const ServerConfig& config, std::shared_ptr<const ApiKeys> keys,
                       std::shared_ptr<SpanExporter> exporter, Metrics* metrics)
    : api_(config, std::move(keys), std::move(exporter), metrics),
      cors_(config),
      keep_alive_(config.sse_keep_alive_seconds, api_.active) {}

Status Dispatcher::OpenResponses() {
  if (api_.config.response_store.empty()) return {};
  return api_.responses->KeepIn(api_.config.response_store);
}

void Dispatcher::BeginDrain() {
  api_.draining = true;
  api_.active->Drain(Error{ErrorCode::kUnavailable, kShuttingDown, ""});
}

void Dispatcher::Stop() {
  keep_alive_.Stop();
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
      api_.limits->AppendHeaders(api_.identity.Of(request), headers);
  }
  if (api_.config.enable_request_id_headers) {
    const std::string* given = request.Header("x-request-id");
    headers.push_back(
        {"x-request-id", given != nullptr && !given->empty() ? *given : RandomHex(32)});
  }
  return headers;
}

// A path with a '/' too many is redirected.
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

void Dispatcher::Handle(HttpRequest request, std::shared_ptr<ResponseWriter> client) {
  if (std::optional<HttpResponse> preflight = cors_.Preflight(request))
    return client->Send(*std::move(preflight));
  const std::string_view path = WithoutRoot(request.path);
  const Route* route = FindRoute(path, api_.config);
  if (route == nullptr) return client->Send(NotFound(request, path));
  const std::vector<std::string_view>& methods = route->methods;
  if (std::find(methods.begin(), methods.end(), request.method) == methods.end()) {
    HttpResponse response =
        EarlyError(path, api_.config.dialect,
                   fmt::format("expected {}, found {}", fmt::join(methods, " or "), request.method),
                   DetailResponse(405, "Method Not Allowed"));
    response.headers.push_back({"allow", fmt::format("{}", fmt::join(methods, ", "))});
    return client->Send(std::move(response));
  }
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
  if (api_.draining) return client->Send(ErrorOf(path, ServiceUnavailable(kShuttingDown)));
  if (model == nullptr) return client->Send(ErrorOf(path, ModelIsLoading()));
  if (api_.pending->fetch_add(1) >= api_.config.max_pending_requests) {
    --*api_.pending;
    api_.metrics->OnRejected();
    return client->Send(
        ErrorOf(path, ServiceUnavailable(fmt::format(
                          "The server is at its limit of {} requests at a time; try again later.",
                          api_.config.max_pending_requests))));
  }
  std::shared_ptr<ClientLimits::Ticket> ticket;
  if (route.with_body != nullptr && api_.limits->any()) {
    auto entered = api_.limits->Enter(api_.identity.Of(request));
    if (!entered) {
      --*api_.pending;
      return client->Send(ErrorOf(path, entered.error()));
    }
    ticket = *std::move(entered);
  }
  const size_t size = request.body.size();
  api_.pool.Submit(
      [this, &route, request = std::make_shared<HttpRequest>(std::move(request)),
       client = std::make_shared<PendingWriter>(std::move(client), api_.pending, ticket),
       model = std::move(model), ticket] {
        if (client->closed()) return;
        const RouteCall call{api_,   route, *request, WithoutRoot(request->path),
                             client, model, ticket};
        if (const ApiStatus status = CallOnWorker(route, call); !status)
          client->Send(ErrorOf(call.path, status.error()));
      },
      size);
}

}  // namespace sluice
