// State that the handlers of all routes share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "media/media_fetcher.h"
#include "server/api/common/active_requests.h"
#include "server/api/common/model_context.h"
#include "server/api/common/worker_pool.h"
#include "server/api/context/client_identity.h"
#include "server/api/context/sleep_control.h"
#include "server/api/context/unknown_fields.h"
#include "server/api/context/weight_updates.h"
#include "server/api/guard/api_keys.h"
#include "server/api/guard/client_limits.h"
#include "server/api/store/response_store.h"
#include "server/metrics.h"
#include "server/server_config.h"
#include "tracing/span_exporter.h"

namespace sluice {

// State that the APIs of several models of one server share. If a member is null, the API creates
// its own.
struct SharedByModels {
  std::shared_ptr<ResponseStore> responses = nullptr;
  std::shared_ptr<ClientLimits> limits = nullptr;
  std::shared_ptr<const ClientIdentity> identity = nullptr;
};

// Thread safety: all members may be used from any thread.
struct ApiContext {
  // `metrics` must outlive this object.
  ApiContext(const ServerConfig& server_config, std::shared_ptr<const ApiKeys> api_keys,
             std::shared_ptr<SpanExporter> span_exporter, Metrics* server_metrics,
             SharedByModels shared)
      : config(server_config),
        keys(std::move(api_keys)),
        exporter(std::move(span_exporter)),
        metrics(server_metrics),
        identity(shared.identity != nullptr ? std::move(shared.identity)
                                            : std::make_shared<const ClientIdentity>(*keys)),
        limits(shared.limits != nullptr ? std::move(shared.limits)
                                        : std::make_shared<ClientLimits>(ClientLimitsOf(config))),
        responses(shared.responses != nullptr
                      ? std::move(shared.responses)
                      : std::make_shared<ResponseStore>(config.response_store_bytes)),
        fetcher(server_config.media.fetch),
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
  const std::shared_ptr<const ClientIdentity> identity;
  const std::shared_ptr<ClientLimits> limits;
  const std::shared_ptr<ActiveRequests> active = std::make_shared<ActiveRequests>();
  const std::shared_ptr<ResponseStore> responses;
  UnknownFields unknown_fields;
  // Number of requests accepted and not completely answered.
  const std::shared_ptr<std::atomic<int64_t>> pending = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<bool> leaving{false};   // /ready answers 503, but requests are served
  std::atomic<bool> draining{false};  // requests are answered with 503
  // Progress of the model's download in bytes; a total of 0: no download is running.
  std::atomic<int64_t> download_done{0};
  std::atomic<int64_t> download_total{0};
  const std::shared_ptr<WeightUpdates> weights = std::make_shared<WeightUpdates>(
      UploadSettings{config.weight_upload_folder, config.max_weight_upload_bytes});
  MediaFetcher fetcher;  // fetches images by URL
  WorkerPool pool;       // stopped before the context is destroyed
  const std::shared_ptr<SleepControl> sleep =
      std::make_shared<SleepControl>(active, metrics, &pool);

 private:
  mutable Mutex model_mutex_;
  std::shared_ptr<const ModelContext> model_ GUARDED_BY(model_mutex_);
};

}  // namespace sluice
