#include "server/api/common/active_requests.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/mutex.h"

namespace sluice {
namespace {

using IdSet = std::unordered_set<std::string_view>;

// Whether `ids` contains `id` ("cmpl-0123") or its part after the dash ("0123").
bool Holds(const IdSet& ids, std::string_view id) {
  if (ids.empty()) return true;
  const size_t dash = id.find('-');
  return ids.contains(id) || (dash != std::string_view::npos && ids.contains(id.substr(dash + 1)));
}

}  // namespace

bool ActiveRequests::Start(const std::string& id, std::weak_ptr<AbortableRequest> request,
                           std::function<void()> start) {
  std::function<void()> on_held;
  bool is_held = false;
  {
    const MutexLock lock(mutex_);
    last_change_ = std::chrono::steady_clock::now();
    if (paused_) {
      // Drops deferred requests whose clients have disconnected.
      std::erase_if(held_, [](const Held& held) { return held.entry.request.expired(); });
      held_.push_back({{id, std::move(request)}, std::move(start)});
      on_held = on_held_;
      is_held = true;
    } else {
      const std::shared_ptr<AbortableRequest> alive = request.lock();
      if (alive == nullptr) return true;
      running_[alive.get()] = Entry{id, std::move(request)};
    }
  }
  if (is_held) {
    if (on_held) on_held();
    return false;
  }
  start();
  return true;
}

void ActiveRequests::Remove(const AbortableRequest* request) {
  std::vector<std::function<void()>> idle;
  {
    const MutexLock lock(mutex_);
    running_.erase(request);
    last_change_ = std::chrono::steady_clock::now();
    std::erase_if(held_, [request](const Held& held) {
      const auto alive = held.entry.request.lock();
      return alive == nullptr || alive.get() == request;
    });
    if (running_.empty()) idle.swap(on_idle_);
  }
  for (const auto& tell : idle) tell();
}

std::vector<std::shared_ptr<AbortableRequest>> ActiveRequests::Named(
    const std::vector<std::string>& ids) const {
  const IdSet wanted(ids.begin(), ids.end());  // a hash set, because the list may be as long as a
                                               // request body
  std::vector<std::shared_ptr<AbortableRequest>> result;
  const MutexLock lock(mutex_);
  const auto take = [&](const Entry& entry) {
    if (!Holds(wanted, entry.id)) return;
    if (auto request = entry.request.lock()) result.push_back(std::move(request));
  };
  for (const auto& [key, entry] : running_) take(entry);
  for (const Held& held : held_) take(held.entry);
  return result;
}

int ActiveRequests::Abort(const std::vector<std::string>& ids) {
  const auto requests = Named(ids);
  for (const auto& request : requests) request->AbortFromServer();
  return static_cast<int>(requests.size());
}

void ActiveRequests::KeepAlive(std::chrono::steady_clock::duration interval) {
  for (const auto& request : Named({})) request->KeepAlive(interval);
}

void ActiveRequests::AbortRunning() {
  std::vector<std::shared_ptr<AbortableRequest>> running;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, entry] : running_) {
      if (auto request = entry.request.lock()) running.push_back(std::move(request));
    }
  }
  for (const auto& request : running) request->AbortFromServer();
}

void ActiveRequests::Pause(std::function<void()> on_idle) {
  {
    const MutexLock lock(mutex_);
    paused_ = !draining_;
    if (!running_.empty()) {
      on_idle_.push_back(std::move(on_idle));
      return;
    }
  }
  on_idle();
}

void ActiveRequests::Resume() {
  std::vector<Held> held;
  {
    const MutexLock lock(mutex_);
    paused_ = false;
    held.swap(held_);
    for (const Held& entry : held) {
      if (const auto alive = entry.entry.request.lock()) running_[alive.get()] = entry.entry;
    }
  }
  for (const Held& entry : held) {
    if (const auto alive = entry.entry.request.lock()) entry.start();
  }
}

void ActiveRequests::OnHeld(std::function<void()> held) {
  const MutexLock lock(mutex_);
  on_held_ = std::move(held);
}

void ActiveRequests::FailHeld(const Error& error) {
  std::vector<Held> held;
  {
    const MutexLock lock(mutex_);
    held.swap(held_);
  }
  for (const Held& entry : held) {
    if (const auto alive = entry.entry.request.lock()) alive->FailFromServer(error);
  }
}

std::optional<std::chrono::steady_clock::time_point> ActiveRequests::idle_since() const {
  const MutexLock lock(mutex_);
  const bool has_held =
      std::ranges::any_of(held_, [](const Held& held) { return !held.entry.request.expired(); });
  if (!running_.empty() || has_held) return std::nullopt;
  return last_change_;
}

void ActiveRequests::Drain(const Error& error) {
  std::vector<Held> held;
  {
    const MutexLock lock(mutex_);
    draining_ = true;
    paused_ = false;
    held.swap(held_);
  }
  for (const Held& entry : held) {
    if (const auto alive = entry.entry.request.lock()) alive->FailFromServer(error);
  }
}

bool ActiveRequests::paused() const {
  const MutexLock lock(mutex_);
  return paused_;
}

}  // namespace sluice
