// The server's HTTP handler: finds a request's route, checks that it may be answered now, and calls
// the route's handler on the right thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "server/api/context/api_context.h"
#include "server/api/context/route.h"
#include "server/api/guard/cors.h"
#include "server/api/keep_alive_timer.h"
#include "server/http/http_types.h"

namespace sluice {

// Thread safety: all methods may be called from any thread.
class Dispatcher : public HttpHandler {
 public:
  // `metrics` must outlive this object; `exporter` may be null. `shared`: state shared with other
  // dispatchers of the server.
  Dispatcher(const ServerConfig& config, std::shared_ptr<const ApiKeys> keys,
             std::shared_ptr<SpanExporter> exporter, Metrics* metrics, SharedByModels shared = {});
  ~Dispatcher() override { Stop(); }

  // Loads the responses of --response-store. Call before Attach().
  Status OpenResponses();
  // Enables the routes that use the model. Until then they answer 503.
  void Attach(std::shared_ptr<const ModelContext> model) { api_.set_model(std::move(model)); }
  // Undoes Attach(). Requests may still hold the model: destroy the engine only once the returned
  // pointer has expired.
  std::weak_ptr<const ModelContext> Detach();
  // Null if no model is attached.
  std::shared_ptr<const ModelContext> model() const { return api_.model(); }
  // Sets the progress of the model's download, which /health reports while the model is loading. A
  // total of 0 ends it.
  void SetDownload(int64_t done_bytes, int64_t total_bytes) {
    api_.download_done = done_bytes;
    api_.download_total = total_bytes;
  }
  // Makes /ready answer 503, so that clients send requests elsewhere.
  void BeginLeaving();
  // Answers new requests, and those that /pause has deferred, with 503.
  void BeginDrain();
  // Drops queued tasks and joins the workers.
  void Stop();

  // Number of requests accepted and not completely answered.
  int64_t num_pending() const { return api_.pending->load(); }
  // State that other dispatchers may share. This dispatcher's API keys must outlive those
  // dispatchers.
  SharedByModels shared() const { return {api_.responses, api_.limits, api_.identity}; }
  // Returns `path` without --root-path.
  std::string_view WithoutRoot(std::string_view path) const;
  // Returns 401 and `error`, in the shape of the API that `path` belongs to.
  HttpResponse Unauthorized(std::string_view path) const;
  HttpResponse ErrorOf(std::string_view path, const ApiError& error) const;
  // Returns the path of the matching route, for the metrics; "none" if there is none.
  std::string_view RouteOf(std::string_view path) const;

  std::optional<HttpResponse> CheckHead(const HttpRequest& head) override;
  void Handle(HttpRequest request, std::shared_ptr<ResponseWriter> client) override;
  std::string ErrorBody(std::string_view target, int status, std::string_view type,
                        std::string_view message) const override;
  std::vector<HttpHeader> CommonHeaders(const HttpRequest& request, int status) override;

 private:
  // 415 for a body with an unsupported content encoding, such as gzip.
  std::optional<HttpResponse> RefuseEncodedBody(const HttpRequest& request,
                                                std::string_view path) const;
  HttpResponse NotFound(const HttpRequest& request, std::string_view path) const;
  void HandleOnWorker(const Route& route, HttpRequest request,
                      std::shared_ptr<ResponseWriter> client);

  ApiContext api_;
  const Cors cors_;
  KeepAliveTimer keep_alive_;
  IdleSleep idle_sleep_;
};

}  // namespace sluice
