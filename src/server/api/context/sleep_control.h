// Sleeping and waking: of requests, and of the memory of weights and KV cache.
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

// Level 0 holds requests back; 1 also gives the memory back, and 2 the system's copy of the files.
// Where the server has fallen asleep by itself, the next request wakes it.
//
// Thread safety: all methods may be called from any thread.
class SleepControl : public std::enable_shared_from_this<SleepControl> {
 public:
  using Done = std::function<void(const Status&)>;

  // `metrics` outlives it; so does `pool`, which is stopped before.
  SleepControl(std::shared_ptr<ActiveRequests> active, Metrics* metrics, WorkerPool* pool)
      : active_(std::move(active)), metrics_(metrics), pool_(pool) {}

  bool sleeping() const { return sleeping_; }
  // Whether the next request will wake it.
  bool sleeps_until_request() const { return sleeping_ && until_request_; }

  // Holds new requests back at once. Once those that run have ended, `aborts`: aborted, memory is
  // given back, and `done` is called on a worker. After an error it is awake.
  void Sleep(std::shared_ptr<const ModelContext> model, int level, bool aborts, Done done);
  // The same at level 1, until a request comes.
  void SleepUntilRequest(std::shared_ptr<const ModelContext> model);
  // Loads weights, allocates the cache; requests go on once both are there. Returns whether they
  // do. Takes as long as a start: for workers.
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
  // Held while memory is given back or taken.
  Mutex memory_mutex_;
  // Held while `sleeping_`, its metric and `active_` change, which must agree.
  Mutex mutex_;
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> until_request_{false};
  bool is_waking_ GUARDED_BY(mutex_) = false;
};

// A thread that lets the server sleep once it was idle for `idle_seconds`; 0: never.
class IdleSleep {
 public:
  using Model = std::function<std::shared_ptr<const ModelContext>()>;  // null while it is loaded

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
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace sluice
