// The requests in progress: operators can pause and abort them, and streams are kept alive.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"

namespace sluice {

// A request as the server controls it from outside.
class AbortableRequest {
 public:
  virtual ~AbortableRequest() = default;
  // Ends it with finish_reason "abort"; what has been sent stays as it is.
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
  // Calls `start` now, or, while paused, in Resume(), on the thread that calls that; it is dropped
  // if `request` is gone by then. Returns false if it was put off.
  bool Start(const std::string& id, std::weak_ptr<AbortableRequest> request,
             std::function<void()> start);
  void Remove(const AbortableRequest* request);

  // Aborts those whose id is in `ids` (with or without the prefix of its kind), or all if `ids` is
  // empty. Returns how many there were.
  int Abort(const std::vector<std::string>& ids);
  // Aborts all that have been started.
  void AbortRunning();
  // For all, started or held back.
  void KeepAlive(std::chrono::steady_clock::duration interval);
  // From now on requests wait to be started. `on_idle` is called once nothing runs any more, now or
  // later, on any thread; it must not block.
  void Pause(std::function<void()> on_idle);
  void Resume();
  // Fails what is held back with `error`, and holds nothing back from now on.
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
};

}  // namespace sluice
