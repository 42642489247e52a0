// What the handlers of the routes share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "server/api/active_requests.h"
#include "server/api/client_identity.h"
#include "server/api/client_limits.h"
#include "server/api/model_context.h"
#include "server/api/response_store.h"
#include "server/api/worker_pool.h"
#include "server/metrics.h"
#include "server/server_config.h"

namespace sluice {

// Thread safety: all members may be used from any thread.
struct ApiContext {
  // `metrics` outlives it.
  ApiContext(const ServerConfig& server_config, Metrics* server_metrics)
      : config(server_config), metrics(server_metrics), pool(server_config.worker_threads) {}

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
  Metrics* const metrics;
  const ClientIdentity identity{config.api_keys};
  const std::shared_ptr<ClientLimits> limits =
      std::make_shared<ClientLimits>(ClientLimitsOf(config));
  const std::shared_ptr<ActiveRequests> active = std::make_shared<ActiveRequests>();
  const std::shared_ptr<ResponseStore> responses =
      std::make_shared<ResponseStore>(config.response_store_bytes);
  // Requests taken in and not completely answered.
  const std::shared_ptr<std::atomic<int64_t>> pending = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<bool> draining{false};
  // Held while /sleep and /wake_up change `sleeping`, its metric and `active`, which must agree.
  Mutex sleep_mutex;
  std::atomic<bool> sleeping{false};
  WorkerPool pool;  // stopped before the context is destroyed

 private:
  mutable Mutex model_mutex_;
  std::shared_ptr<const ModelContext> model_ GUARDED_BY(model_mutex_);
};

}  // namespace sluice
