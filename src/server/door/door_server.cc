#include "server/door/door_server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/crypto.h>

#include "base/firewall.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/process_memory.h"
#include "server/access_log.h"
#include "server/api/common/field_reader.h"
#include "server/api/common/query.h"
#include "server/api/common/request_body.h"
#include "server/api/common/worker_pool.h"
#include "server/api/context/authorization.h"
#include "server/api/dispatcher.h"
#include "server/door/door_answers.h"
#include "server/door/model_field.h"
#include "server/door/model_slots.h"
#include "server/http/http_server.h"
#include "server/metrics.h"
#include "tracing/span_exporter.h"

namespace sluice {
namespace {

constexpr auto kDoorDrainPoll = std::chrono::milliseconds(20);
// The interval at which the server returns memory and logs statistics.
constexpr auto kDoorUpkeep = std::chrono::milliseconds(1000);
// The maximum time that a drained server waits for clients that read slowly.
constexpr auto kDoorLastBytes = std::chrono::seconds(5);
// Maximum bytes of a body that the I/O thread searches for the model's name. Workers search larger
// bodies.
constexpr size_t kSmallBody = size_t{64} << 10;
constexpr std::string_view kModelsPath = "/v1/models";
constexpr std::string_view kOneModelPath = "/v1/models/{model_id}";

// Whether the route is refused because the server itself decides which models are in memory.
bool IsSleepRoute(std::string_view path) {
  return path == "/sleep" || path == "/wake_up";
}

bool Takes(const Route& route, const std::string& method) {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(route.methods, name) != route.methods.end();
  };
  return has(method) || (method == "HEAD" && has("GET"));
}

ApiError UnknownModel(const std::string& name, const std::vector<std::string>& known) {
  ApiError error;
  error.status = 404;
  error.type = "NotFoundError";
  error.param = "model";
  error.message = fmt::format("The model `{}` does not exist. This server has: {}.",
                              name.substr(0, 200), fmt::join(known, ", "));
  return error;
}

class DoorServerImpl final : public DoorServer, public HttpHandler {
 public:
  DoorServerImpl(const DoorConfig& config, std::vector<DoorModel> models,
                 const std::shared_ptr<ApiKeys>& all_keys,
                 const std::vector<std::shared_ptr<ApiKeys>>& keys,
                 std::shared_ptr<SpanExporter> exporter)
      : config_(config.server),
        all_keys_(all_keys),
        keys_(keys),
        memory_(std::make_shared<RequestMemory>(config_.request_memory_bytes)),
        metrics_(memory_),
        access_log_(config_, all_keys),
        front_(config_, all_keys, exporter, &metrics_),
        pool_(config_.worker_threads),
        slots_(config, std::move(models), keys, &front_, exporter, memory_) {
    metrics_.SetExporter(std::move(exporter));
  }
  ~DoorServerImpl() override { Close(); }

  Status Listen() {
    RETURN_IF_ERROR(front_.OpenResponses());
    ASSIGN_OR_RETURN(
        http_, HttpServer::Listen(config_, memory_, this,
                                  [this](const HttpExchangeRecord& record) { Record(record); }));
    http_->Start();
    return {};
  }

  uint16_t port() const override { return http_->port(); }
  void Start() override { slots_.Start(); }
  bool IsReady() const override { return slots_.IsReady(); }
  bool IsLoading() const override { return slots_.IsLoading(); }
  Status OpenDoor() override { return http_->OpenDoor(); }

  void Reload() override {
    all_keys_->Reload();
    for (const std::shared_ptr<ApiKeys>& keys : keys_) keys->Reload();
    http_->ReloadCertificates();
  }

  int Run() override {
    using Clock = std::chrono::steady_clock;
    const bool lines = !config_.disable_log_stats && config_.log_stats_seconds > 0;
    const auto interval = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(lines ? config_.log_stats_seconds : 3600.0));
    auto next_line = Clock::now() + interval;
    std::optional<Clock::time_point> idle_since;
    MutexLock lock(mutex_);
    running_ = true;
    while (!stopping_) {
      wake_.WaitUntil(lock, Clock::now() + (draining_ ? kDoorDrainPoll : kDoorUpkeep));
      const bool draining = draining_;
      lock.Unlock();
      const auto now = Clock::now();
      const bool shows_lines = lines && now >= next_line;
      if (shows_lines) next_line = now + interval;
      RunGuarded("server", "upkeep", [&] {
        ReturnMemory();
        if (config_.tls.refresh) http_->RefreshCertificates();
        if (!shows_lines) return;
        for (const std::string& line : slots_.ThroughputLines()) LOG_INFO("engine", "{}", line);
      });
      const bool is_drained = draining && slots_.IsDrained();
      if (!is_drained) {
        idle_since.reset();
      } else if (!idle_since) {
        idle_since = now;
      }
      lock.Lock();
      if (!is_drained) continue;
      const bool is_answered = http_->num_exchanges() == 0 && front_.num_pending() == 0;
      if (is_answered || now > *idle_since + kDoorLastBytes) break;
    }
    running_ = false;
    lock.Unlock();
    http_->Stop();
    return 0;
  }

  void BeginLeaving() override {
    leaving_ = true;
    front_.BeginLeaving();
    slots_.BeginLeaving();
    http_->BeginLeaving();
  }
  void StopAccepting() override { http_->StopAccepting(); }

  void BeginDrain() override {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(draining_, true)) return;
    }
    is_draining_ = true;
    front_.BeginDrain();
    slots_.BeginDrain();
    http_->BeginDrain();
    wake_.NotifyAll();
  }

  void Stop() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      if (running_) {
        wake_.NotifyAll();
        return;
      }
    }
    if (http_) http_->Stop();
  }

  // --- HttpHandler.

  std::optional<HttpResponse> CheckHead(const HttpRequest& head) override {
    std::optional<HttpResponse> refusal = front_.CheckHead(head);
    if (!refusal) return std::nullopt;
    // The model is named in the body, which is not read yet. So this check accepts a key of any
    // model.
    const std::string_view path = front_.WithoutRoot(head.path);
    const Route* const route = FindRoute(path, config_);
    if (route == nullptr) return refusal;
    for (size_t i = 0; i < keys_.size(); ++i) {
      const int index = static_cast<int>(i);
      if (IsAuthorized(head, path, route, slots_.model(index).config, slots_.keys(index)))
        return std::nullopt;
    }
    return refusal;
  }

  void Handle(HttpRequest request, std::shared_ptr<ResponseWriter> client) override {
    const std::string_view path = front_.WithoutRoot(request.path);
    const Route* const route = FindRoute(path, config_);
    if (route == nullptr || !Takes(*route, request.method) || Cors::IsPreflight(request))
      return front_.Handle(std::move(request), std::move(client));
    if (AnswersItself(*route)) return client->Send(OwnAnswer(*route, request, path));
    if (IsSleepRoute(route->path)) {
      ApiError error;
      error.status = 501;
      error.type = "NotImplementedError";
      error.message =
          "A server with several models unloads idle models when others need their memory.";
      return client->Send(front_.ErrorOf(path, error));
    }
    std::optional<std::string> name = QueryValue(request, "model");
    const bool may_have_model = route->on_io_thread == nullptr && !route->without_model;
    if (!may_have_model && !name) return front_.Handle(std::move(request), std::move(client));
    if (name) return Forward(*route, std::move(request), std::move(client), *name);
    if (request.body.size() <= kSmallBody) return ForwardByBody(*route, std::move(request), client);
    const auto held = std::make_shared<HttpRequest>(std::move(request));
    pool_.Submit([this, route, held, client] { ForwardByBody(*route, std::move(*held), client); },
                 held->body.size());
  }

  std::string ErrorBody(std::string_view target, int status, std::string_view type,
                        std::string_view message) const override {
    return front_.ErrorBody(target, status, type, message);
  }
  std::vector<HttpHeader> CommonHeaders(const HttpRequest& request, int status) override {
    return front_.CommonHeaders(request, status);
  }

 private:
  static bool AnswersItself(const Route& route) {
    constexpr std::string_view kOwn[] = {
        "/health", "/ready",    "/ping",       "/metrics",
        "/load",   kModelsPath, kOneModelPath, "/prometheus/metrics"};
    return std::ranges::find(kOwn, route.path) != std::end(kOwn);
  }

  bool MayUse(const ModelFacts& facts, const HttpRequest& request, std::string_view path,
              const Route& route) const {
    return IsAuthorized(request, path, &route, facts.model->config, *facts.keys);
  }

  HttpResponse OwnAnswer(const Route& route, const HttpRequest& request,
                         std::string_view path) const {
    const std::vector<ModelFacts> models = slots_.Facts();
    const DoorPhase phase = is_draining_ ? DoorPhase::kDraining
                            : leaving_   ? DoorPhase::kLeaving
                                         : DoorPhase::kServing;
    if (route.path == "/ready") return DoorReadiness(models, IsReady(), phase);
    if (route.path == "/health" || route.path == "/ping")
      return DoorHealth(models, IsReady(), phase);
    if (route.path == "/load") {
      int64_t load = 0;
      for (const ModelFacts& facts : models) load += facts.in_flight + facts.waiting;
      return JsonResponse(
          fmt::format(R"({{"server_load":{}}})", config_.enable_server_load_tracking ? load : 0));
    }
    if (route.path.ends_with("/metrics")) {
      HttpResponse response = JsonResponse(DoorMetrics(metrics_, models, slots_.budget_bytes()));
      response.content_type = "text/plain; version=1.0.0; charset=utf-8";
      return response;
    }
    std::vector<ModelCard> cards;
    for (const ModelFacts& facts : models) {
      if (!MayUse(facts, request, path, route)) continue;
      for (ModelCard& card : DoorCards(facts, created_)) cards.push_back(std::move(card));
    }
    const bool for_anthropic = request.Header("anthropic-version") != nullptr;
    if (route.path == kModelsPath)
      return JsonResponse(ModelList(cards, config_.dialect, for_anthropic));
    const std::string name(path.substr(kModelsPath.size() + 1));
    const auto found =
        std::ranges::find_if(cards, [&](const ModelCard& card) { return card.name == name; });
    if (found == cards.end())
      return front_.ErrorOf(path, UnknownModel(name, NamesFor(request, path, route)));
    std::string body;
    AppendModelCard(body, *found, config_.dialect, for_anthropic);
    return JsonResponse(std::move(body));
  }

  std::vector<std::string> NamesFor(const HttpRequest& request, std::string_view path,
                                    const Route& route) const {
    std::vector<std::string> names;
    for (const ModelFacts& facts : slots_.Facts()) {
      if (MayUse(facts, request, path, route)) names.push_back(facts.model->name);
    }
    return names;
  }

  void ForwardByBody(const Route& route, HttpRequest request,
                     const std::shared_ptr<ResponseWriter>& client) {
    std::optional<std::string> name = FindModelField(request.body);
    if (name && !name->empty()) return Forward(route, std::move(request), client, *name);
    const std::string_view path = front_.WithoutRoot(request.path);
    if (route.with_body != nullptr && !name) {
      const ApiResult<json::Value> body = ParseRequestBody(request);
      if (!body) return client->Send(front_.ErrorOf(path, body.error()));
      if (body->is_object() && Given(*body, "model") != nullptr) {
        const ApiStatus error = BadParameter("expected the name of a model, a text", "model");
        return client->Send(front_.ErrorOf(path, error.error()));
      }
    }
    const ApiStatus error = BadParameter(
        fmt::format(
            "this server has several models, but the request names no model{}; the models are {}",
            route.with_body == nullptr ? " (add ?model=NAME)" : "",
            fmt::join(NamesFor(request, path, route), ", ")),
        "model");
    client->Send(front_.ErrorOf(path, error.error()));
  }

  void Forward(const Route& route, HttpRequest request, std::shared_ptr<ResponseWriter> client,
               const std::string& name) {
    const std::string_view path = front_.WithoutRoot(request.path);
    const std::optional<int> index = slots_.Find(name);
    if (!index)
      return client->Send(front_.ErrorOf(path, UnknownModel(name, NamesFor(request, path, route))));
    if (!IsAuthorized(request, path, &route, slots_.model(*index).config, slots_.keys(*index)))
      return client->Send(front_.Unauthorized(path));
    if (route.path == "/v1/load_lora_adapter") {
      if (const ApiStatus free = CheckAdapterName(request, *index); !free)
        return client->Send(front_.ErrorOf(path, free.error()));
    }
    slots_.Answer(*index, std::move(request), std::move(client));
  }

  // A request names a model or an adapter, so each name must be unique in the whole server.
  ApiStatus CheckAdapterName(const HttpRequest& request, int index) const {
    if (request.body.size() > kSmallBody)
      return BadRequest(fmt::format("The body has more than {} bytes.", kSmallBody));
    const Result<json::Value> body = json::Parse(request.body);
    const json::Value* const name = body && body->is_object() ? body->Find("lora_name") : nullptr;
    // The model's own check refuses this body.
    if (name == nullptr || !name->is_string()) return {};
    if (slots_.Find(name->as_string()).value_or(index) == index) return {};
    return BadParameter(
        fmt::format("another model of this server has the name '{}'; choose another",
                    name->as_string().substr(0, 1000)),
        "lora_name");
  }

  // Returns the memory of large requests and of unloaded models to the system.
  void ReturnMemory() {
    if (RefillMemoryReserve()) LOG_WARNING("server", "memory ran out: requests have failed");
    if (memory_->TakeReturned() > 0) ReturnFreeMemory();
  }

  void Record(const HttpExchangeRecord& record) {
    metrics_.OnHttp(record, front_.RouteOf(record.path));
    access_log_.Add(record);
  }

  // Stops the connections' threads first, because they pass requests to the models' threads.
  void Close() {
    BeginDrain();
    if (http_) http_->Stop();
    pool_.Stop();
    slots_.Stop();
    front_.Stop();
  }

  const ServerConfig config_;
  const std::shared_ptr<ApiKeys> all_keys_;
  const std::vector<std::shared_ptr<ApiKeys>> keys_;  // keys of each model
  const int64_t created_ = UnixSeconds();
  const std::shared_ptr<RequestMemory> memory_;
  Metrics metrics_;
  AccessLog access_log_;
  Dispatcher front_;  // answers requests that need no model
  WorkerPool pool_;
  ModelSlots slots_;
  std::atomic<bool> leaving_{false}, is_draining_{false};
  std::unique_ptr<HttpServer> http_;

  Mutex mutex_;
  CondVar wake_;
  bool draining_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool running_ GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<std::unique_ptr<DoorServer>> DoorServer::Create(DoorConfig config,
                                                       std::vector<DoorModel> models) {
  std::vector<std::shared_ptr<ApiKeys>> keys;
  std::vector<std::string> all_keys = config.server.api_keys;
  for (const DoorModel& model : models) {
    auto loaded = ApiKeys::Load(model.config.api_keys, model.config.api_key_file);
    if (!loaded)
      return tl::unexpected(std::move(loaded).error().In(fmt::format("model '{}'", model.name)));
    keys.push_back(*std::move(loaded));
    all_keys.insert(all_keys.end(), model.config.api_keys.begin(), model.config.api_keys.end());
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<ApiKeys> every_key,
                   ApiKeys::Load(all_keys, config.server.api_key_file));
  for (DoorModel& model : models) {
    for (std::string& key : model.config.api_keys) OPENSSL_cleanse(key.data(), key.size());
  }
  for (std::string& key : all_keys) OPENSSL_cleanse(key.data(), key.size());
  config.server.api_keys = std::move(all_keys);
  std::shared_ptr<SpanExporter> exporter;
  if (!config.server.otlp_traces_endpoint.empty()) {
    ASSIGN_OR_RETURN(
        SpanExporterSettings settings,
        ReadSpanExporterSettings(config.server.otlp_traces_endpoint, config.server.version,
                                 [](const char* name) { return std::getenv(name); }));
    exporter = std::make_shared<SpanExporter>(std::move(settings));
  }
  auto server = std::make_unique<DoorServerImpl>(config, std::move(models), every_key, keys,
                                                 std::move(exporter));
  RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace sluice
