// Sleep mode: pauses requests and frees the memory of weights and KV cache.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "base/mutex.h"
#include "base/result.h"
#include "server/api/common/active_requests.h"
#include "server/api/common/model_context.h"
#include "server/api/common/worker_pool.h"
#include "server/metrics.h"

namespace sluice {

// Level 0 only defers requests. Level 1 also frees memory. Level 2 also drops the files from the
// system's cache. If the server fell asleep because it was idle, the next request wakes it.
class SleepControl : public std::enable_shared_from_this<SleepControl> {
 public:
  using Done = std::function<void(const Status&)>;

  // `metrics` and `pool` must outlive this object; `pool` must be stopped before this object is
  // destroyed.
  SleepControl(std::shared_ptr<ActiveRequests> active, Metrics* metrics, WorkerPool* pool)
      : active_(std::move(active)), metrics_(metrics), pool_(pool) {}

  bool sleeping() const { return sleeping_; }
  // Whether the next request will wake the server.
  bool sleeps_until_request() const { return sleeping_ && until_request_; }

  // Defers new requests immediately. Once the running ones have ended (with `aborts`, they are
  // aborted), frees the memory and calls `done` on a worker. After an error the server is awake.
  void Sleep(std::shared_ptr<const ModelContext> model, int level, bool aborts, Done done);
  // Sleeps at level 1 until a request arrives.
  void SleepUntilRequest(std::shared_ptr<const ModelContext> model);
  // Loads the weights, allocates the cache, or both. Once both are in memory, requests continue;
  // returns whether they continue. Takes as long as loading at startup, so call it on a worker.
  Result<bool> WakeUp(const ModelContext& model, bool weights, bool cache);

 private:
  void Begin(std::shared_ptr<const ModelContext> model, int level, bool aborts, bool until_request,
             Done done);
  Status GiveBack(const ModelContext& model, int level);
  void OnHeld(const std::shared_ptr<const ModelContext>& model);
  void SetAwake() REQUIRES(mutex_);

  const std::shared_ptr<ActiveRequests> active_;
  Metrics* const metrics_;
  WorkerPool* const pool_;
  // Held while memory is freed or allocated.
  Mutex memory_mutex_;
  // Held while `sleeping_`, its metric and `active_` change, because they must agree.
  Mutex mutex_;
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> until_request_{false};
  bool is_waking_ GUARDED_BY(mutex_) = false;
};

// A thread that puts the server to sleep after `idle_seconds` without requests; 0: never.
class IdleSleep {
 public:
  using Model = std::function<std::shared_ptr<const ModelContext>()>;  // returns null while the
                                                                       // model loads

  IdleSleep(double idle_seconds, std::shared_ptr<ActiveRequests> active,
            std::shared_ptr<SleepControl> control, Model model);
  ~IdleSleep() { Stop(); }
  IdleSleep(const IdleSleep&) = delete;
  IdleSleep& operator=(const IdleSleep&) = delete;

  void Stop();

 private:
  using Duration = std::chrono::steady_clock::duration;

  void Run(Duration idle);

  const std::shared_ptr<ActiveRequests> active_;
  const std::shared_ptr<SleepControl> control_;
  const Model model_;
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last member, because the thread uses those above
};

}  // namespace sluice
