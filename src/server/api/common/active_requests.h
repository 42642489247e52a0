// The requests in progress: pausing and aborting them, and keeping streams alive.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"

namespace sluice {

// A request that the server can end.
class AbortableRequest {
 public:
  virtual ~AbortableRequest() = default;
  // Ends it with finish_reason "abort"; output already sent remains part of the answer.
  virtual void AbortFromServer() = 0;
  // Ends it with an error.
  virtual void FailFromServer(const Error& error) = 0;
  // Called several times per interval: a stream that has sent nothing for that long sends a
  // keep-alive comment.
  virtual void KeepAlive(std::chrono::steady_clock::duration interval) = 0;
};

// Thread safety: all methods may be called from any thread. Memory: as many entries as there are
// pending requests, which the server limits.
class ActiveRequests {
 public:
  // Calls `start` now or, while paused, later on the thread that calls Resume(); then only if
  // `request` still exists. Returns false if it was deferred.
  bool Start(const std::string& id, std::weak_ptr<AbortableRequest> request,
             std::function<void()> start);
  void Remove(const AbortableRequest* request);

  // Aborts the requests whose id is in `ids` (with or without the prefix of its kind), or all if
  // `ids` is empty. Returns the number of requests aborted.
  int Abort(const std::vector<std::string>& ids);
  // Aborts all started requests.
  void AbortRunning();
  // Calls KeepAlive of all requests, started or deferred.
  void KeepAlive(std::chrono::steady_clock::duration interval);
  // Defers new requests until Resume(). `on_idle` is called once no request runs, now or later, on
  // any thread; it must not block.
  void Pause(std::function<void()> on_idle);
  void Resume();
  // `held` is called after each request that is deferred from now on; null: no callback. It must
  // not block.
  void OnHeld(std::function<void()> held);
  // Fails the deferred requests with `error`; new ones are still deferred.
  void FailHeld(const Error& error);
  // Since when no request has been running or deferred; nullopt while one is.
  std::optional<std::chrono::steady_clock::time_point> idle_since() const;
  // Fails the deferred requests with `error`; no further ones are deferred.
  void Drain(const Error& error);
  bool paused() const;

 private:
  struct Entry {
    std::string id;
    std::weak_ptr<AbortableRequest> request;
  };

  std::vector<std::shared_ptr<AbortableRequest>> Named(const std::vector<std::string>& ids) const;

  mutable Mutex mutex_;
  bool paused_ GUARDED_BY(mutex_) = false;
  bool draining_ GUARDED_BY(mutex_) = false;
  std::unordered_map<const AbortableRequest*, Entry> running_ GUARDED_BY(mutex_);
  struct Held {
    Entry entry;
    std::function<void()> start;
  };
  std::vector<Held> held_ GUARDED_BY(mutex_);
  std::vector<std::function<void()>> on_idle_ GUARDED_BY(mutex_);
  std::function<void()> on_held_ GUARDED_BY(mutex_);
  // Time when a request last came or ended.
  std::chrono::steady_clock::time_point last_change_ GUARDED_BY(mutex_) =
      std::chrono::steady_clock::now();
};

}  // namespace sluice
