#include "server/api/context/route.h"

#include <fmt/format.h>

#include "server/api/context/route_table.h"

namespace sluice {
namespace {

struct Missing {
  std::string_view path;  // a '/' at the end means all paths below it
  std::string_view reason;
};

constexpr std::string_view kNoSpeech = "this server has no speech models";
constexpr std::string_view kNoProfiler =
    "this server has no profiler to start over HTTP; use `perf` on the process";
constexpr std::string_view kOneEngine = "this server is one engine in one process";

// Routes that vLLM has with some options or models, and that this server lacks.
constexpr Missing kMissing[] = {
    {"/v1/audio/", kNoSpeech},
    {"/v1/realtime", kNoSpeech},
    {"/start_profile", kNoProfiler},
    {"/stop_profile", kNoProfiler},
    {"/is_scaling_elastic_ep", kOneEngine},
    {"/fault_tolerance/", kOneEngine},
    {"/perf_metrics", "/prometheus/metrics contains the times of all requests"},
    {"/kv_cache_events", "events of the cache are published with --kv-events-config"},
    {"/energy_metrics", "/metrics counts energy in sluice:energy_joules_total"},
    {"/kv_event_sources", "the log names the addresses of --kv-events-config"},
    {"/cohere/",
     "only /v2/embed and /v2/rerank of Cohere's API are served; use /v1/chat/completions for "
     "chats"},
    {"/release_kv_cache_memory", "POST /sleep releases weights and KV cache together"},
    {"/start_draft_weight_update",
     "/start_weight_update replaces the weights of the served model; the draft model's weights "
     "cannot be replaced"},
    {"/weight_checker", "GET /weight_info names the weights in use"},
};

const std::vector<Route>& AllRoutes() {
  static const std::vector<Route> routes = [] {
    std::vector<Route> all;
#define SLUICE_ADD_ROUTES(name) \
  for (Route & route : name()) all.push_back(std::move(route));
    SLUICE_ROUTE_TABLE(SLUICE_ADD_ROUTES)
#undef SLUICE_ADD_ROUTES
    return all;
  }();
  return routes;
}

bool IsOpen(RouteGate gate, const ServerConfig& config) {
  switch (gate) {
    case RouteGate::kAlways: return true;
    case RouteGate::kDocs: return config.enable_docs;
    case RouteGate::kWeb: return config.enable_web;
    case RouteGate::kTokenizerInfo: return config.enable_tokenizer_info_endpoint;
    case RouteGate::kDev: return config.dev_mode;
    case RouteGate::kWeights: return config.dev_mode && config.enable_weight_updates;
    case RouteGate::kRuntimeLora: return config.runtime_lora;
    case RouteGate::kScaleOut: return config.enable_scale_out;
    case RouteGate::kNoScaleOut: return !config.enable_scale_out;
    case RouteGate::kNotVllm: return config.dialect != ApiDialect::kVllm;
    case RouteGate::kVllm: return config.dialect == ApiDialect::kVllm;
    case RouteGate::kTrtllm: return config.dialect == ApiDialect::kTrtllm;
  }
  return false;
}

bool Matches(const Route& route, std::string_view path) {
  const size_t brace = route.path.find('{');
  if (brace == std::string_view::npos) return route.path == path;
  const std::string_view prefix = route.path.substr(0, brace);
  const std::string_view suffix = route.path.substr(route.path.find('}') + 1);
  return path.size() > prefix.size() + suffix.size() && path.starts_with(prefix) &&
         path.ends_with(suffix);
}

}  // namespace

const Route* FindRoute(std::string_view path, const ServerConfig& config) {
  if (path == "/metrics/") path = "/metrics";
  // A route with exactly this path takes precedence over one with a segment in braces.
  const Route* pattern = nullptr;
  for (const Route& route : AllRoutes()) {
    if (!Matches(route, path) || !IsOpen(route.gate, config)) continue;
    if (route.path == path) return &route;
    if (pattern == nullptr) pattern = &route;
  }
  return pattern;
}

std::vector<const Route*> OpenRoutes(const ServerConfig& config) {
  std::vector<const Route*> open;
  for (const Route& route : AllRoutes()) {
    if (IsOpen(route.gate, config)) open.push_back(&route);
  }
  return open;
}

std::string NotFoundDetail(std::string_view path, const ServerConfig& config) {
  for (const Route& route : AllRoutes()) {
    if (route.path != path || IsOpen(route.gate, config)) continue;
    switch (route.gate) {
      case RouteGate::kDev:
        return fmt::format(
            "Not Found: {} is a development route; start the server with VLLM_SERVER_DEV_MODE=1",
            path);
      case RouteGate::kWeights:
        return fmt::format(
            "Not Found: {} replaces weights; start the server with VLLM_SERVER_DEV_MODE=1 and "
            "--weight-transfer-config '{{\"backend\": \"disk\"}}'",
            path);
      case RouteGate::kRuntimeLora:
        return fmt::format(
            "Not Found: {} changes which LoRA adapters are served; start the server with "
            "--enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1",
            path);
      case RouteGate::kTokenizerInfo:
        return fmt::format(
            "Not Found: {} needs --enable-tokenizer-info-endpoint; /tokenize and /detokenize are "
            "always available",
            path);
      case RouteGate::kDocs: return "Not Found: --disable-fastapi-docs is set";
      default: break;
    }
  }
  for (const Missing& missing : kMissing) {
    const bool below = missing.path.ends_with('/') && path.starts_with(missing.path);
    if (below || missing.path == path)
      return fmt::format("Not Found: {} is not served: {}", path, missing.reason);
  }
  return "Not Found";
}

Route OnIoThread(std::string_view path, Methods methods, RouteGate gate, Handler* handler,
                 std::string_view summary, std::string_view response) {
  return {.path = path,
          .methods = std::move(methods),
          .gate = gate,
          .summary = summary,
          .request = "",
          .response = response,
          .on_io_thread = handler};
}

Route OnWorker(std::string_view path, Methods methods, RouteGate gate, Handler* handler,
               std::string_view summary, std::string_view response) {
  return {.path = path,
          .methods = std::move(methods),
          .gate = gate,
          .summary = summary,
          .request = "",
          .response = response,
          .on_worker = handler};
}

Route WithBody(std::string_view path, BodyHandler* handler, std::string_view summary,
               std::string_view request, std::string_view response) {
  return {.path = path,
          .methods = {"POST"},
          .summary = summary,
          .request = request,
          .response = response,
          .with_body = handler};
}

Route WithoutModel(Route route) {
  route.without_model = true;
  return route;
}

Route WithAccess(RouteAccess access, Route route) {
  route.access = access;
  return route;
}

Route WithGate(RouteGate gate, Route route) {
  route.gate = gate;
  return route;
}

ApiError ModelIsLoading() {
  return ServiceUnavailable("The model is still being loaded.");
}

ApiStatus CheckModelIsLoaded(const RouteCall& call) {
  if (call.model != nullptr) return {};
  return tl::unexpected<ApiError>(ModelIsLoading());
}

HttpResponse TextResponse(std::string text, int status) {
  HttpResponse response;
  response.status = status;
  response.content_type = "text/plain; charset=utf-8";
  response.body = std::move(text);
  return response;
}

}  // namespace sluice
