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
  // `metrics` outlives it; `exporter` may be null.
  Dispatcher(const ServerConfig& config, std::shared_ptr<const ApiKeys> keys,
             std::shared_ptr<SpanExporter> exporter, Metrics* metrics);
  ~Dispatcher() override { Stop(); }

  // Takes in what --response-store keeps. Before Attach().
  Status OpenResponses();
  // From now on requests reach the model; before, they are answered 503.
  void Attach(std::shared_ptr<const ModelContext> model) { api_.set_model(std::move(model)); }
  // While the model is loading, /health tells how much of it was downloaded; a total of 0 ends
  // that.
  void SetDownload(int64_t done_bytes, int64_t total_bytes) {
    api_.download_done = done_bytes;
    api_.download_total = total_bytes;
  }
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
  std::string ErrorBody(std::string_view target, int status, std::string_view type,
                        std::string_view message) const override;
  std::vector<HttpHeader> CommonHeaders(const HttpRequest& request, int status) override;

 private:
  std::string_view WithoutRoot(std::string_view path) const;
  HttpResponse NotFound(const HttpRequest& request, std::string_view path) const;
  void HandleOnWorker(const Route& route, HttpRequest request,
                      std::shared_ptr<ResponseWriter> client);
  // In the shape of the API that `path` is of.
  HttpResponse ErrorOf(std::string_view path, const ApiError& error) const;

  ApiContext api_;
  const Cors cors_;
  KeepAliveTimer keep_alive_;
};

}  // namespace sluice
