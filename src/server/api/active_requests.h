// The generations that run now, so that an operator can hold them back or end them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace sluice {

// What can be told to a generation from outside.
class AbortableRequest {
 public:
  virtual ~AbortableRequest() = default;
  // Ends it with finish_reason "abort"; what it has said stays said.
  virtual void AbortFromServer() = 0;
  // Asked a few times an interval: a stream that has said nothing for so long says that it lives.
  virtual void KeepAlive(std::chrono::steady_clock::duration interval) = 0;
};

// Thread safety: all methods may be called from any thread. Memory: as many entries as there are
// pending requests, which the server limits.
class ActiveRequests {
 public:
  // `start` runs now, or, while paused, when Resume() is called, on the thread that calls it; it
  // is dropped where `request` is gone by then. False: it was put off.
  bool Start(const std::string& id, std::weak_ptr<AbortableRequest> request,
             std::function<void()> start);
  void Remove(const AbortableRequest* request);

  // Ends those whose id is in `ids` (with or without the prefix of its kind), or all if `ids` is
  // empty; how many there were.
  int Abort(const std::vector<std::string>& ids);
  // Asks all of them, also those that are held back.
  void KeepAlive(std::chrono::steady_clock::duration interval);
  // Those that have been started, all of them.
  int AbortRunning();
  // From now on requests wait to be started. `on_idle` is called once nothing runs any more, now or
  // later, on any thread; it must not block.
  void Pause(std::function<void()> on_idle);
  void Resume();
  bool paused() const;

 private:
  std::vector<std::shared_ptr<AbortableRequest>> All(const std::vector<std::string>& ids) const;
  static int End(const std::vector<std::shared_ptr<AbortableRequest>>& requests);

  struct Entry {
    std::string id;
    std::weak_ptr<AbortableRequest> request;
  };

  mutable std::mutex mutex_;
  bool paused_ = false;
  std::unordered_map<const AbortableRequest*, Entry> running_;
  struct Held {
    Entry entry;
    std::function<void()> start;
  };
  std::vector<Held> held_;
  std::vector<std::function<void()>> on_idle_;
};

}  // namespace sluice
