// The routes of the server: which path does what, who may use it, and when.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/api/active_requests.h"
#include "server/api/cors.h"
#include "server/api/model_context.h"
#include "server/api/route.h"
#include "server/api/worker_pool.h"
#include "server/http/http_types.h"
#include "server/metrics.h"

namespace sluice {

class AnswerWriter;
struct ChatRequest;
struct GenerationRequest;
struct SamplingFields;

// Answers requests: quick ones on the I/O thread that brings them, those with a body on the worker
// pool. Thread safety: all methods may be called from any thread.
class Api : public HttpHandler {
 public:
  // `metrics` outlives it.
  Api(const ServerConfig& config, Metrics* metrics);
  ~Api() override;

  // From now on requests reach the model; before, they are answered 503.
  void Attach(std::shared_ptr<const ModelContext> model);
  // From now on new work is answered 503.
  void BeginDrain() { draining_ = true; }
  // Drops what waits for a worker and joins the workers.
  void Stop();

  // Requests taken in and not completely answered.
  int64_t num_pending() const { return pending_->load(); }
  // The route a path belongs to, for the metrics; "none" if there is none.
  std::string_view RouteOf(std::string_view path) const;

  std::optional<HttpResponse> CheckHead(const HttpRequest& head) override;
  void Handle(HttpRequest request, std::shared_ptr<ResponseWriter> writer) override;
  std::vector<HttpHeader> CommonHeaders(const HttpRequest& request, int status) override;

 private:
  using Writer = std::shared_ptr<ResponseWriter>;
  using Model = std::shared_ptr<const ModelContext>;
  struct Route;
  static std::span<const Route> Routes();

  const Route* FindRoute(std::string_view path) const;
  std::vector<const RouteSpec*> OpenRoutes() const;
  HttpResponse NotFound(std::string_view path) const;
  std::string_view WithoutRoot(std::string_view path) const;
  bool Authorized(const HttpRequest& head) const;
  Model model() const;
  HttpResponse Refusal(const ApiError& error) const {
    return ErrorResponse(error, config_.dialect);
  }

  // Inline.
  void Health(const HttpRequest& request, Writer writer);
  void Version(const HttpRequest& request, Writer writer);
  void Load(const HttpRequest& request, Writer writer);
  void ShowMetrics(const HttpRequest& request, Writer writer);
  void Prometheus(const HttpRequest& request, Writer writer);
  void Models(const HttpRequest& request, Writer writer);
  void OneModel(const HttpRequest& request, Writer writer);
  void TokenizerInfo(const HttpRequest& request, Writer writer);
  void OpenApi(const HttpRequest& request, Writer writer);
  void Docs(const HttpRequest& request, Writer writer);
  void StoredResponse(const HttpRequest& request, Writer writer);
  void ServerInfo(const HttpRequest& request, Writer writer);
  void IsPaused(const HttpRequest& request, Writer writer);
  void IsSleeping(const HttpRequest& request, Writer writer);
  void WorldSize(const HttpRequest& request, Writer writer);

  // On a worker.
  void HealthGenerate(const HttpRequest& request, Writer writer, Model model);
  void Refused(const HttpRequest& request, Writer writer, Model model);
  void ResetCache(const HttpRequest& request, Writer writer, Model model);
  void ResetNothing(const HttpRequest& request, Writer writer, Model model);
  void Pause(const HttpRequest& request, Writer writer, Model model);
  void Resume(const HttpRequest& request, Writer writer, Model model);
  void Sleep(const HttpRequest& request, Writer writer, Model model);
  void WakeUp(const HttpRequest& request, Writer writer, Model model);
  void AbortRequests(const HttpRequest& request, Writer writer, Model model);
  void CollectiveRpc(const HttpRequest& request, Writer writer, Model model);

  // Of these `handler` takes the body; what the body's parser or it refuses is answered.
  template <ApiStatus (Api::*handler)(const HttpRequest&, const json::Value&, Writer, Model)>
  void WithBody(const HttpRequest& request, Writer writer, Model model);
  ApiStatus Completions(const HttpRequest& request, const json::Value& body, Writer writer,
                        Model model);
  ApiStatus Chat(const HttpRequest& request, const json::Value& body, Writer writer, Model model);
  ApiStatus BatchChat(const HttpRequest& request, const json::Value& body, Writer writer,
                      Model model);
  ApiStatus Invocations(const HttpRequest& request, const json::Value& body, Writer writer,
                        Model model);
  ApiStatus Tokenize(const HttpRequest& request, const json::Value& body, Writer writer,
                     Model model);
  ApiStatus Detokenize(const HttpRequest& request, const json::Value& body, Writer writer,
                       Model model);
  // `conversations`: the messages of each, with all else as `decoded` says.
  ApiStatus StartChat(const HttpRequest& request, const ChatRequest& decoded,
                      std::span<const json::Value> conversations, Writer writer, Model model);
  void Start(GenerationRequest generation, const SamplingFields& fields, Writer writer,
             std::unique_ptr<AnswerWriter> answer, Model model);

  const ServerConfig config_;
  Metrics* const metrics_;
  const Cors cors_;
  const std::shared_ptr<std::atomic<int64_t>> pending_ = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<bool> draining_{false};
  const std::shared_ptr<ActiveRequests> active_ = std::make_shared<ActiveRequests>();
  std::mutex sleep_mutex_;  // of two who say otherwise at once, the later one is right in all
  std::atomic<bool> sleeping_{false};
  mutable std::mutex mutex_;  // guards model_
  Model model_;
  WorkerPool pool_;

  void WatchSilence();
  std::mutex silence_mutex_;  // guards stopping_
  std::condition_variable silence_wake_;
  bool stopping_ = false;
  std::thread silence_thread_;  // with --sse-keep-alive-interval
};

}  // namespace sluice
