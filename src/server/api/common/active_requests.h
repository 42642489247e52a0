// The requests in progress. They can be paused and aborted, and their streams are kept alive.
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
  // Ends the request with finish_reason "abort". Output already sent remains part of the answer.
  virtual void AbortFromServer() = 0;
  // Ends the request with an error.
  virtual void FailFromServer(const Error& error) = 0;
  // Sends a keep-alive comment if this is a stream that has sent nothing for `interval`. Called
  // several times per interval.
  virtual void KeepAlive(std::chrono::steady_clock::duration interval) = 0;
};

// Memory: as many entries as there are pending requests, which the server limits. Thread safety:
// all methods may be called from any thread.
class ActiveRequests {
 public:
  // Calls `start` now or, while paused, later on the thread that calls Resume(), provided that
  // `request` still exists then. Returns false if the call was deferred.
  bool Start(const std::string& id, std::weak_ptr<AbortableRequest> request,
             std::function<void()> start);
  void Remove(const AbortableRequest* request);

  // Aborts the requests whose id is in `ids` (with or without its prefix), or all requests if `ids`
  // is empty. Returns the number of requests aborted.
  int Abort(const std::vector<std::string>& ids);
  // Aborts all started requests.
  void AbortRunning();
  // Calls KeepAlive of all requests, started or deferred.
  void KeepAlive(std::chrono::steady_clock::duration interval);
  // Defers new requests until Resume(). Calls `on_idle` once no request runs, now or later, on any
  // thread; it must not block.
  void Pause(std::function<void()> on_idle);
  void Resume();
  // Sets a callback for each request that is deferred; null: none. It must not block.
  void OnHeld(std::function<void()> held);
  // Fails the deferred requests with `error`. New ones are still deferred.
  void FailHeld(const Error& error);
  // Returns the time since which no request has been running or deferred; nullopt while there is
  // one.
  std::optional<std::chrono::steady_clock::time_point> idle_since() const;
  // Fails the deferred requests with `error`. No further ones are deferred.
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
  // When a request last arrived or ended.
  std::chrono::steady_clock::time_point last_change_ GUARDED_BY(mutex_) =
      std::chrono::steady_clock::now();
};

}  // namespace sluice
