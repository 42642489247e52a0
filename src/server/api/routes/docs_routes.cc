// GET /openapi.json, /docs, /redoc.
#include "server/api/common/web_answer.h"
#include "server/api/context/openapi.h"
#include "server/api/context/route_table.h"

namespace sluice {
namespace {

ApiStatus OpenApi(const RouteCall& call) {
  const ServerConfig& config = call.api.config;
  call.client->Send(JsonResponse(OpenApiDocument(OpenRoutes(config), config)));
  return {};
}

ApiStatus Docs(const RouteCall& call) {
  const ServerConfig& config = call.api.config;
  call.client->Send(HtmlResponse(DocsPage(OpenRoutes(config), config)));
  return {};
}

}  // namespace

std::vector<Route> DocsRoutes() {
  return {
      WithAccess(RouteAccess::kOpen, OnIoThread("/openapi.json", {"GET", "HEAD"}, RouteGate::kDocs,
                                                OpenApi, "This description.")),
      WithAccess(RouteAccess::kOpen, OnIoThread("/docs", {"GET", "HEAD"}, RouteGate::kDocs, Docs,
                                                "The routes as a page.", "html")),
      WithAccess(RouteAccess::kOpen, OnIoThread("/redoc", {"GET", "HEAD"}, RouteGate::kDocs, Docs,
                                                "As /docs.", "html")),
  };
}

}  // namespace sluice
