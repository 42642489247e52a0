// GET /openapi.json, /docs, /redoc.
#include "server/api/openapi.h"
#include "server/api/route_table.h"

namespace sluice {
namespace {

ApiStatus OpenApi(const RouteCall& call) {
  const ServerConfig& config = call.api.config;
  call.client->Send(JsonResponse(OpenApiDocument(OpenRoutes(config), config)));
  return {};
}

ApiStatus Docs(const RouteCall& call) {
  const ServerConfig& config = call.api.config;
  HttpResponse response = JsonResponse(DocsPage(OpenRoutes(config), config));
  response.content_type = "text/html; charset=utf-8";
  call.client->Send(std::move(response));
  return {};
}

}  // namespace

std::vector<Route> DocsRoutes() {
  return {
      {.path = "/openapi.json",
       .methods = {"GET", "HEAD"},
       .gate = RouteGate::kDocs,
       .summary = "This description.",
       .on_io_thread = OpenApi},
      {.path = "/docs",
       .methods = {"GET", "HEAD"},
       .gate = RouteGate::kDocs,
       .summary = "The routes as a page.",
       .response = "html",
       .on_io_thread = Docs},
      {.path = "/redoc",
       .methods = {"GET", "HEAD"},
       .gate = RouteGate::kDocs,
       .summary = "As /docs.",
       .response = "html",
       .on_io_thread = Docs},
  };
}

}  // namespace sluice
