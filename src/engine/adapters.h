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

// Names that are known at a time.
inline constexpr size_t kMostAdapters = 10000;

// Names and paths are kept for all adapters, factors for as many as the model has slots: an adapter
// without one is read again when a request asks for it, into the slot that was unused for the
// longest. An adapter that requests use stays in its slot, also when it is removed or replaced;
// where they use all slots, requests for others wait, in the order in which they came. Requests for
// an adapter that is in a slot do not wait after them.
//
// Thread safety: all methods may be called from any thread; files are read on the caller's, or, for
// requests that have waited, on a thread of its own. Ownership: of the slots together with the
// models; uses may outlive it.
class Adapters {
 public:
  // What requests use, by name: requests that wait to be computed, and the others.
  struct Counts {
    int64_t waiting = 0, running = 0;
  };

  // `max_loras` is what the metric shows.
  Adapters(std::shared_ptr<LoraStore> slots, int64_t max_loras);
  ~Adapters();

  // Reads the adapter and makes it known. Errors of LoraAdapter::Open and LoraSlots::Fill;
  // kInvalidArgument where the name is known, unless `replace`, which keeps requests that run with
  // the old one, and where kMostAdapters are known.
  Status Add(const AdapterSource& source, bool replace);
  // kNotFound for a name that is not known.
  Status Remove(std::string_view name);
  bool Has(std::string_view name) const;
  // In the order in which they were added.
  std::vector<AdapterSource> List() const;

  // An adapter to be used by a request, whose factors stay in their slot meanwhile. Where no slot
  // is free it is not ready yet. kNotFound for a name that is not known; errors of Add where it
  // must be read again.
  Result<std::shared_ptr<const AdapterUse>> Acquire(std::string_view name);
  // Calls `then` once the use is ready, with an error where its adapter was removed or cannot be
  // read: now, or later on the thread of the adapters, which it should not keep for long. Never
  // where the use is destroyed before.
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
    uint64_t owner = 0;  // Entry::id; 0: none, or one that is gone
    uint64_t serial = 0;
    int64_t uses = 0;
    uint64_t last_use = 0;
    bool is_filling = false;
  };
  static std::pair<bool, uint64_t> AgeOf(const Slot& slot) {
    return {slot.owner != 0, slot.last_use};
  }
  // A use without a slot.
  struct Waiter {
    std::weak_ptr<const AdapterUse> use;
    std::string name;
    std::function<void(const Status&)> then;  // null until WhenReady
  };
  // What uses refer to.
  struct State {
    Mutex mutex;
    CondVar changed;  // a slot was filled or is not used any more, or there is a waiter
    bool is_stopping GUARDED_BY(mutex) = false;
    std::list<Waiter> waiters GUARDED_BY(mutex);
    std::vector<Entry> entries GUARDED_BY(mutex);
    std::vector<Slot> slots GUARDED_BY(mutex);
    std::map<std::string, Counts> counts GUARDED_BY(mutex);
    uint64_t next_id GUARDED_BY(mutex) = 1;
    uint64_t next_serial GUARDED_BY(mutex) = 1;
    uint64_t clock GUARDED_BY(mutex) = 1;

    Entry* Find(std::string_view name) REQUIRES(mutex);
    // A slot that no request uses, emptied for `entry`, which has it from now on: it is to be
    // filled. -1 if there is none.
    int TakeSlot(Entry& entry) REQUIRES(mutex);
    // The slot's content is there, or, where `failed`, it has none.
    void EndFilling(int slot, bool failed) REQUIRES(mutex);
    // A request uses the slot.
    void Use(const Entry& entry, const AdapterUse& use) REQUIRES(mutex);
  };

  // Fills the slot, which TakeSlot gave, without the lock.
  Status Fill(int slot, const LoraAdapter& adapter, MutexLock& lock) REQUIRES(state_->mutex);
  Status Fill(int slot, const std::filesystem::path& path, MutexLock& lock) REQUIRES(state_->mutex);
  // The thread of the waiters.
  void ServeWaiters();
  // Does something for one of them; false where nothing can be done now.
  bool ServeOne(MutexLock& lock) REQUIRES(state_->mutex);
  // Takes the waiter from the list and tells it. Without the lock meanwhile.
  void Tell(std::list<Waiter>::iterator waiter, const Status& status, MutexLock& lock)
      REQUIRES(state_->mutex);

  const std::shared_ptr<LoraStore> slots_;
  const int64_t max_loras_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;  // last: it uses all of the above
};

// An adapter that a request uses, or waits for: its slot keeps its content until this is destroyed.
// Thread safety: all methods may be called from any thread.
class AdapterUse {
 public:
  AdapterUse(std::shared_ptr<Adapters::State> state, std::string name)
      : state_(std::move(state)), name_(std::move(name)) {}
  AdapterUse(const AdapterUse&) = delete;
  AdapterUse& operator=(const AdapterUse&) = delete;
  ~AdapterUse();

  const std::string& name() const { return name_; }
  bool is_ready() const;
  // REQUIRES: it is ready, and the caller knows it by Adapters::WhenReady or is_ready().
  int slot() const { return slot_; }
  // The serial number of the slot's content; never used again. REQUIRES: as slot().
  uint64_t serial() const { return serial_; }
  // Its request waits no longer.
  void MarkRunning() const;

 private:
  friend class Adapters;

  const std::shared_ptr<Adapters::State> state_;
  const std::string name_;
  // Guarded by the state's mutex; slot and serial are set once.
  mutable int slot_ = -1;  // -1: it is not ready
  mutable uint64_t serial_ = 0;
  mutable std::optional<Error> error_;  // why it never will be
  mutable bool is_running_ = false;
};

}  // namespace sluice
