// The server's HTTP handler: finds the route of a request, checks that it may be answered now, and
// calls the route's handler on the right thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "server/api/api_context.h"
#include "server/api/cors.h"
#include "server/api/keep_alive_timer.h"
#include "server/api/route.h"
#include "server/http/http_types.h"

namespace sluice {

// Thread safety: all methods may be called from any thread.
class Dispatcher : public HttpHandler {
 public:
  // `metrics` outlives it.
  Dispatcher(const ServerConfig& config, Metrics* metrics);
  ~Dispatcher() override { Stop(); }

  // From now on requests reach the model; before, they are answered 503.
  void Attach(std::shared_ptr<const ModelContext> model) { api_.set_model(std::move(model)); }
  // From now on new work is answered 503, and so is what /pause holds back.
  void BeginDrain();
  // Drops what waits for a worker and joins the workers.
  void Stop();

  // Requests taken in and not completely answered.
  int64_t num_pending() const { return api_.pending->load(); }
  // The route a path belongs to, for the metrics; "none" if there is none.
  std::string_view RouteOf(std::string_view path) const;

  std::optional<HttpResponse> CheckHead(const HttpRequest& head) override;
  void Handle(HttpRequest request, std::shared_ptr<ResponseWriter> client) override;
  std::vector<HttpHeader> CommonHeaders(const HttpRequest& request, int status) override;

 private:
  std::string_view WithoutRoot(std::string_view path) const;
  HttpResponse NotFound(const HttpRequest& request, std::string_view path) const;
  void HandleOnWorker(const Route& route, HttpRequest request,
                      std::shared_ptr<ResponseWriter> client);
  void SendError(ResponseWriter& client, const ApiError& error) const {
    client.Send(ErrorResponse(error, api_.config.dialect));
  }

  ApiContext api_;
  const Cors cors_;
  KeepAliveTimer keep_alive_;
};

}  // namespace sluice
