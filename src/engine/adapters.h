// The LoRA adapters that an engine serves, by name, and which of them are in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "engine/adapter_settings.h"
#include "models/lora_store.h"

namespace sluice {

class AdapterUse;

// Maximum number of registered adapters.
inline constexpr size_t kMostAdapters = 10000;

// Keeps the names and paths of all adapters, but the weights of only as many adapters as the model
// has slots. An adapter without a slot is read again when a request asks for it, into the least
// recently used free slot. An adapter in use stays in its slot, even if it is removed or replaced.
// If all slots are in use, requests for other adapters wait in order of arrival. Requests for an
// adapter that is in a slot do not wait for them.
//
// Thread safety: all methods may be called from any thread; files are read on the caller's thread
// or, for requests that had to wait, on a thread of this class. Ownership: shares the slots with
// the models; an AdapterUse may outlive it.
class Adapters {
 public:
  // The numbers of requests that use an adapter: those that wait to be computed, and the others.
  struct Counts {
    int64_t waiting = 0, running = 0;
  };

  // `max_loras` is used only as a metric.
  Adapters(std::shared_ptr<LoraStore> slots, int64_t max_loras);
  ~Adapters();

  // Reads and registers the adapter. Errors are those of LoraAdapter::Open and LoraSlots::Fill;
  // kInvalidArgument if the name is registered and `replace` is false, or if kMostAdapters are
  // registered. With `replace`, running requests keep the old adapter.
  Status Add(const AdapterSource& source, bool replace);
  // Removes an adapter; running requests keep it. kNotFound if the name is unknown.
  Status Remove(std::string_view name);
  bool Has(std::string_view name) const;
  // Returns the adapters in the order of their addition.
  std::vector<AdapterSource> List() const;

  // Makes a request use the adapter: its weights stay in their slot until the use is destroyed. If
  // no slot is free, the use is not ready yet. kNotFound if the name is unknown; the errors of Add
  // if the adapter must be read again.
  Result<std::shared_ptr<const AdapterUse>> Acquire(std::string_view name);
  // Calls `then` once the use is ready, or with an error if its adapter was removed or cannot be
  // read: either immediately, or later on this class's thread, which `then` must not block for
  // long. Never calls it if the use is destroyed first.
  void WhenReady(const std::shared_ptr<const AdapterUse>& use,
                 std::function<void(const Status&)> then);

  int64_t max_loras() const { return max_loras_; }
  std::map<std::string, Counts> counts() const;

 private:
  friend class AdapterUse;

  struct Entry {
    AdapterSource source;
    uint64_t id = 0;
    int slot = -1;  // -1: not in memory
  };
  struct Slot {
    uint64_t owner = 0;  // Entry::id of the slot's adapter, which may have been removed; 0: none
    uint64_t serial = 0;
    int64_t uses = 0;
    uint64_t last_use = 0;
    bool is_filling = false;
  };
  static std::pair<bool, uint64_t> AgeOf(const Slot& slot) {
    return {slot.owner != 0, slot.last_use};
  }
  // An AdapterUse that waits for a slot.
  struct Waiter {
    std::weak_ptr<const AdapterUse> use;
    std::string name;
    std::function<void(const Status&)> then;  // null until WhenReady
  };
  // State shared with all AdapterUse objects.
  struct State {
    Mutex mutex;
    CondVar changed;  // a slot was filled or became unused, or a waiter was added
    bool is_stopping GUARDED_BY(mutex) = false;
    std::list<Waiter> waiters GUARDED_BY(mutex);
    std::vector<Entry> entries GUARDED_BY(mutex);
    std::vector<Slot> slots GUARDED_BY(mutex);
    std::map<std::string, Counts> counts GUARDED_BY(mutex);
    uint64_t next_id GUARDED_BY(mutex) = 1;
    uint64_t next_serial GUARDED_BY(mutex) = 1;
    uint64_t clock GUARDED_BY(mutex) = 1;

    Entry* Find(std::string_view name) REQUIRES(mutex);
    // Empties a slot that no request uses and assigns it to `entry`; the caller must fill it.
    // Returns the slot, or -1 if there is none.
    int TakeSlot(Entry& entry) REQUIRES(mutex);
    // Marks the slot as filled or, if `failed`, as empty.
    void EndFilling(int slot, bool failed) REQUIRES(mutex);
    // Counts a use of the entry's slot.
    void Use(const Entry& entry, const AdapterUse& use) REQUIRES(mutex);
  };

  // Fills the slot that TakeSlot returned; releases the lock meanwhile.
  Status Fill(int slot, const LoraAdapter& adapter, MutexLock& lock) REQUIRES(state_->mutex);
  Status Fill(int slot, const std::filesystem::path& path, MutexLock& lock) REQUIRES(state_->mutex);
  // Runs on `thread_`.
  void ServeWaiters();
  // Serves one waiter. Returns false if none can be served now.
  bool ServeOne(MutexLock& lock) REQUIRES(state_->mutex);
  // Removes the waiter from the list and reports `status` to it. Releases the lock meanwhile.
  void Tell(std::list<Waiter>::iterator waiter, const Status& status, MutexLock& lock)
      REQUIRES(state_->mutex);

  const std::shared_ptr<LoraStore> slots_;
  const int64_t max_loras_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;  // last member, because it uses all others
};

// A request's use of an adapter, or its wait for one. The slot keeps its content until this is
// destroyed. Thread safety: all methods may be called from any thread.
class AdapterUse {
 public:
  AdapterUse(std::shared_ptr<Adapters::State> state, std::string name)
      : state_(std::move(state)), name_(std::move(name)) {}
  AdapterUse(const AdapterUse&) = delete;
  AdapterUse& operator=(const AdapterUse&) = delete;
  ~AdapterUse();

  const std::string& name() const { return name_; }
  bool is_ready() const;
  // Returns the slot. REQUIRES: ready, as reported by Adapters::WhenReady or is_ready().
  int slot() const { return slot_; }
  // Returns the serial number of the slot's content, which is never reused. REQUIRES: ready.
  uint64_t serial() const { return serial_; }
  // Marks the request as running, for Adapters::Counts.
  void MarkRunning() const;

 private:
  friend class Adapters;

  const std::shared_ptr<Adapters::State> state_;
  const std::string name_;
  // Guarded by the state's mutex; slot and serial are set only once.
  mutable int slot_ = -1;  // -1: not ready
  mutable uint64_t serial_ = 0;
  mutable std::optional<Error> error_;  // why it will never be ready
  mutable bool is_running_ = false;
};

}  // namespace sluice
