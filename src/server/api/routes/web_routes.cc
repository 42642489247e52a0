// GET / for browsers, and /web/NAME: the files that the page loads.
#include "base/ascii.h"
#include "server/api/common/web_answer.h"
#include "server/api/context/route_table.h"

namespace sluice {
namespace {

// Programs other than browsers get the same answer at / as from `vllm serve`.
bool WantsPage(const HttpRequest& request) {
  const std::string* accept = request.Header("accept");
  return accept != nullptr && AsciiLower(*accept).find("text/html") != std::string::npos;
}

ApiStatus Page(const RouteCall& call) {
  HttpResponse response = WantsPage(call.request)
                              ? FileResponse(call.request, *FindWebFile("index.html"))
                              : DetailResponse(404, "Not Found");
  response.headers.push_back({"vary", "Accept"});
  call.client->Send(std::move(response));
  return {};
}

ApiStatus PageFile(const RouteCall& call) {
  const WebFile* file = FindWebFile(call.path.substr(call.route.path.find('{')));
  const bool is_part = file != nullptr && !file->name.ends_with(".html");
  call.client->Send(is_part ? FileResponse(call.request, *file) : DetailResponse(404, "Not Found"));
  return {};
}

}  // namespace

std::vector<Route> WebRoutes() {
  return {
      WithAccess(RouteAccess::kOpen, OnIoThread("/", {"GET", "HEAD"}, RouteGate::kWeb, Page)),
      WithAccess(RouteAccess::kOpen,
                 OnIoThread("/web/{name}", {"GET", "HEAD"}, RouteGate::kWeb, PageFile)),
      WithAccess(RouteAccess::kOpen,
                 OnIoThread("/docs/{name}", {"GET", "HEAD"}, RouteGate::kDocs, PageFile)),
  };
}

}  // namespace sluice
