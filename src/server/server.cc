#include "server/server.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>

#include <openssl/crypto.h>

#include "base/firewall.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/process_memory.h"
#include "server/access_log.h"
#include "server/api/dispatcher.h"
#include "server/api/guard/api_keys.h"
#include "server/http/http_server.h"
#include "server/metrics.h"
#include "server/request_memory.h"
#include "tracing/span_exporter.h"

namespace sluice {
namespace {

constexpr auto kDrainPoll = std::chrono::milliseconds(20);
// Interval between maintenance of the server's memory and statistics.
constexpr auto kUpkeep = std::chrono::milliseconds(1000);
// The maximum time that a drained server waits for clients that read slowly.
constexpr auto kLastBytes = std::chrono::seconds(5);

class ServerImpl : public Server {
 public:
  ServerImpl(ServerConfig config, std::shared_ptr<ApiKeys> keys,
             std::shared_ptr<SpanExporter> exporter)
      : config_(std::move(config)),
        keys_(std::move(keys)),
        memory_(std::make_shared<RequestMemory>(config_.request_memory_bytes)),
        metrics_(memory_),
        access_log_(config_, keys_),
        dispatcher_(config_, keys_, exporter, &metrics_) {
    metrics_.SetExporter(std::move(exporter));
  }

  ~ServerImpl() override { Close(); }

  Status Listen() {
    RETURN_IF_ERROR(dispatcher_.OpenResponses());
    ASSIGN_OR_RETURN(
        http_, HttpServer::Listen(config_, memory_, &dispatcher_,
                                  [this](const HttpExchangeRecord& record) { Record(record); }));
    http_->Start();
    return {};
  }

  uint16_t port() const override { return http_->port(); }
  void SetDownload(int64_t done_bytes, int64_t total_bytes) override {
    dispatcher_.SetDownload(done_bytes, total_bytes);
  }
  EngineObserver* observer(int i) override { return metrics_.Of(i); }

  Status Attach(Engine* engine, ModelText text) override {
    std::shared_ptr<const ModelContext> model =
        ModelContext::Make(config_, engine, std::move(text));
    metrics_.SetModel(model->name(), engine->info(), config_);
    memory_->SetPlanned(static_cast<uint64_t>(engine->info().request_memory_bytes -
                                              ImageCacheBytes(config_, engine->info(), *model)));
    dispatcher_.Attach(std::move(model));
    {
      const MutexLock lock(mutex_);
      engine_ = engine;
      if (draining_) engine_->BeginShutdown();
    }
    return http_->OpenDoor();
  }

  void Reload() override {
    keys_->Reload();
    http_->ReloadCertificates();
  }

  int Run() override {
    using Clock = std::chrono::steady_clock;
    const bool lines = !config_.disable_log_stats && config_.log_stats_seconds > 0;
    const auto interval = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(lines ? config_.log_stats_seconds : 3600.0));
    auto next_line = Clock::now() + interval;
    std::optional<std::chrono::steady_clock::time_point> idle_since;
    MutexLock lock(mutex_);
    running_ = true;
    while (!stopping_) {
      wake_.WaitUntil(lock, Clock::now() + (draining_ ? kDrainPoll : kUpkeep));
      lock.Unlock();
      const auto now = Clock::now();
      const bool shows_lines = lines && now >= next_line;
      if (shows_lines) next_line = now + interval;
      RunGuarded("server", "upkeep", [&] {
        ReturnMemory();
        if (config_.tls.refresh) http_->RefreshCertificates();
        if (!shows_lines) return;
        for (const std::string& line : metrics_.ThroughputLines()) LOG_INFO("engine", "{}", line);
      });
      lock.Lock();
      if (!draining_) continue;
      if (engine_ != nullptr && engine_->num_unfinished() > 0) {
        idle_since.reset();  // a request may have arrived while the drain began
        continue;
      }
      if (!idle_since) idle_since = now;
      // Background responses are pending without an exchange.
      const bool is_answered = http_->num_exchanges() == 0 && dispatcher_.num_pending() == 0;
      if (is_answered || now > *idle_since + kLastBytes) break;
    }
    lock.Unlock();
    Close();
    return 0;
  }

  void BeginLeaving() override {
    dispatcher_.BeginLeaving();
    http_->BeginLeaving();
  }
  void StopAccepting() override { http_->StopAccepting(); }

  void BeginDrain() override {
    dispatcher_.BeginDrain();
    {
      const MutexLock lock(mutex_);
      if (draining_) return;
      draining_ = true;
      if (engine_ != nullptr) engine_->BeginShutdown();
    }
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
    Close();
  }

 private:
  // Ends all connections and their work. The engine is not used afterwards.
  void Close() {
    const MutexLock lock(close_mutex_);  // a second caller returns only when everything is closed
    dispatcher_.BeginDrain();
    if (http_) http_->Stop();
    dispatcher_.Stop();
  }

  // Returns to the system the memory of large requests, which the allocator would keep.
  void ReturnMemory() {
    if (RefillMemoryReserve()) LOG_WARNING("server", "memory ran out: requests have failed");
    if (memory_->TakeReturned() > 0) ReturnFreeMemory();
  }

  void Record(const HttpExchangeRecord& record) {
    metrics_.OnHttp(record, dispatcher_.RouteOf(record.path));
    access_log_.Add(record);
  }

  const ServerConfig config_;
  const std::shared_ptr<ApiKeys> keys_;
  const std::shared_ptr<RequestMemory> memory_;
  Metrics metrics_;
  AccessLog access_log_;
  Dispatcher dispatcher_;
  std::unique_ptr<HttpServer> http_;
  Mutex close_mutex_;  // held while closing

  Mutex mutex_;
  CondVar wake_;
  Engine* engine_ GUARDED_BY(mutex_) = nullptr;
  bool draining_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool running_ GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::Create(ServerConfig config) {
  ASSIGN_OR_RETURN(std::shared_ptr<ApiKeys> keys,
                   ApiKeys::Load(config.api_keys, config.api_key_file));
  for (std::string& key : config.api_keys) OPENSSL_cleanse(key.data(), key.size());
  std::shared_ptr<SpanExporter> exporter;
  if (!config.otlp_traces_endpoint.empty()) {
    ASSIGN_OR_RETURN(SpanExporterSettings settings,
                     ReadSpanExporterSettings(config.otlp_traces_endpoint, config.version,
                                              [](const char* name) { return std::getenv(name); }));
    exporter = std::make_shared<SpanExporter>(std::move(settings));
  }
  auto server =
      std::make_unique<ServerImpl>(std::move(config), std::move(keys), std::move(exporter));
  RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace sluice
