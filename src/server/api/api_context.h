// State shared by the handlers of all routes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "server/api/active_requests.h"
#include "server/api/api_keys.h"
#include "server/api/client_identity.h"
#include "server/api/client_limits.h"
#include "server/api/model_context.h"
#include "server/api/response_store.h"
#include "server/api/unknown_fields.h"
#include "server/api/worker_pool.h"
#include "server/metrics.h"
#include "server/server_config.h"
#include "tracing/span_exporter.h"

namespace sluice {

// Thread safety: all members may be used from any thread.
struct ApiContext {
  // `metrics` outlives it.
  ApiContext(const ServerConfig& server_config, std::shared_ptr<const ApiKeys> api_keys,
             std::shared_ptr<SpanExporter> span_exporter, Metrics* server_metrics)
      : config(server_config),
        keys(std::move(api_keys)),
        exporter(std::move(span_exporter)),
        metrics(server_metrics),
        pool(server_config.worker_threads) {}

  // Null while the model is being loaded.
  std::shared_ptr<const ModelContext> model() const {
    const MutexLock lock(model_mutex_);
    return model_;
  }
  void set_model(std::shared_ptr<const ModelContext> model) {
    const MutexLock lock(model_mutex_);
    model_ = std::move(model);
  }

  const ServerConfig config;
  const std::shared_ptr<const ApiKeys> keys;
  const std::shared_ptr<SpanExporter> exporter;  // null: nothing is traced
  Metrics* const metrics;
  const ClientIdentity identity{*keys};
  const std::shared_ptr<ClientLimits> limits =
      std::make_shared<ClientLimits>(ClientLimitsOf(config));
  const std::shared_ptr<ActiveRequests> active = std::make_shared<ActiveRequests>();
  const std::shared_ptr<ResponseStore> responses =
      std::make_shared<ResponseStore>(config.response_store_bytes);
  UnknownFields unknown_fields;
  // Requests accepted and not completely answered.
  const std::shared_ptr<std::atomic<int64_t>> pending = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<bool> draining{false};
  // Of the model's files, while they are downloaded; a total of 0: nothing is.
  std::atomic<int64_t> download_done{0};
  std::atomic<int64_t> download_total{0};
  // Held while /sleep and /wake_up change `sleeping`, its metric and `active`, which must agree.
  Mutex sleep_mutex;
  std::atomic<bool> sleeping{false};
  WorkerPool pool;  // stopped before the context is destroyed

 private:
  mutable Mutex model_mutex_;
  std::shared_ptr<const ModelContext> model_ GUARDED_BY(model_mutex_);
};

}  // namespace sluice
