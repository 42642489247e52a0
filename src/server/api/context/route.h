// A route: its handler, and the data that the dispatcher, the metrics and /openapi.json need.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "media/media_fetcher.h"
#include "server/api/common/api_error.h"
#include "server/api/context/api_context.h"
#include "server/http/http_types.h"

namespace sluice {

// The condition under which a route exists.
enum class RouteGate {
  kAlways,
  kDocs,           // unless --disable-fastapi-docs
  kWeb,            // unless --disable-web
  kTokenizerInfo,  // with --enable-tokenizer-info-endpoint
  kDev,            // with VLLM_SERVER_DEV_MODE=1
  kWeights,        // with VLLM_SERVER_DEV_MODE=1 and --weight-transfer-config
  kRuntimeLora,    // with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1
  kScaleOut,       // with --enable-scale-out
  kNoScaleOut,     // without --enable-scale-out
  kNotVllm,        // unless the dialect is `vllm serve`, which lacks this route
  kVllm,           // only in the dialect of `vllm serve`
  kTrtllm,         // only in the dialect of `trtllm-serve`
};

// The clients that may call a route of a server with API keys.
enum class RouteAccess {
  kKey,     // clients with a key: routes that compute, change state, or expose the model or
            // requests
  kOpen,    // everyone, unless --protect-all is given
  kHealth,  // everyone, always: health probes
};

struct Route;

// A request to a route.
struct RouteCall {
  ApiContext& api;
  const Route& route;
  HttpRequest& request;
  std::string_view path;  // without --root-path
  std::shared_ptr<ResponseWriter> client;
  // Null while no model is loaded; only handlers on the I/O thread and of routes WithoutModel are
  // called then.
  std::shared_ptr<const ModelContext> model;
  // The ticket for the client's limits; null on the I/O thread and for routes that compute nothing.
  std::shared_ptr<ClientLimits::Ticket> ticket = nullptr;
  // Images of the body that were fetched by URL; null: none.
  std::shared_ptr<const FetchedMedia> media = nullptr;
};

// Either answers `call.client`, now or later, or returns the error to send to the client.
using Handler = ApiStatus(const RouteCall& call);
using BodyHandler = ApiStatus(const RouteCall& call, const json::Value& body);

struct Route {
  // A segment in braces matches one or more segments: "/v1/models/{model_id}".
  std::string_view path;
  std::vector<std::string_view> methods;
  RouteGate gate = RouteGate::kAlways;
  RouteAccess access = RouteAccess::kKey;
  std::string_view summary;   // one line; empty: not described in /openapi.json
  std::string_view request;   // schema of the body; empty: no body
  std::string_view response;  // schema of the answer; "text" or "html"; empty: any JSON
  // With on_worker: whether the route is answered even while no model is loaded.
  bool without_model = false;
  // Exactly one of these is set.
  Handler* on_io_thread = nullptr;
  Handler* on_worker = nullptr;
  BodyHandler* with_body = nullptr;
};

using Methods = std::vector<std::string_view>;

// Makes a route whose handler is called on the I/O thread, also while no model is loaded. The
// handler must return quickly.
Route OnIoThread(std::string_view path, Methods methods, RouteGate gate, Handler* handler,
                 std::string_view summary = "", std::string_view response = "");
// Makes a route whose handler is called on a worker. Requests are refused while the server drains
// or the model is being loaded.
Route OnWorker(std::string_view path, Methods methods, RouteGate gate, Handler* handler,
               std::string_view summary = "", std::string_view response = "");
// Like OnWorker, for a POST whose handler gets the parsed body.
Route WithBody(std::string_view path, BodyHandler* handler, std::string_view summary,
               std::string_view request, std::string_view response);

// Returns `route`, changed to be answered even without a model.
Route WithoutModel(Route route);
// Returns `route` with an access other than kKey.
Route WithAccess(RouteAccess access, Route route);
// Returns `route` with a condition other than kAlways.
Route WithGate(RouteGate gate, Route route);

// Returns the route at `path` if `config` enables it, or null.
const Route* FindRoute(std::string_view path, const ServerConfig& config);
// Returns the routes that `config` enables.
std::vector<const Route*> OpenRoutes(const ServerConfig& config);

// Returns the text of a 404 at `path`, for {"detail": ...}: names a route of vLLM that this server
// lacks, or that an option would enable; else "Not Found".
std::string NotFoundDetail(std::string_view path, const ServerConfig& config);

// 503 if `call` has no model.
ApiStatus CheckModelIsLoaded(const RouteCall& call);
ApiError ModelIsLoading();

// Returns an answer in plain text.
HttpResponse TextResponse(std::string text, int status = 200);

}  // namespace sluice
