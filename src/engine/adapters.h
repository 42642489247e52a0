// The LoRA adapters that an engine serves, by name, and which of them are in memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "engine/adapter_settings.h"
#include "models/lora_slots.h"

namespace sluice {

class AdapterUse;

// Names that are known at a time.
inline constexpr size_t kMostAdapters = 10000;

// Names and paths are kept for all adapters, factors for as many as the model has slots: an adapter
// without one is read again when a request asks for it, into the slot that was unused for the
// longest. An adapter that requests use stays in its slot, also when it is removed or replaced.
//
// Thread safety: all methods may be called from any thread; files are read on the caller's.
// Ownership: `slots` outlives it; uses may outlive it.
class Adapters {
 public:
  // What requests use, by name: requests that wait to be computed, and the others.
  struct Counts {
    int64_t waiting = 0, running = 0;
  };

  // `max_loras` is what the metric shows.
  Adapters(LoraSlots& slots, int64_t max_loras);

  // Reads the adapter and makes it known. Errors of LoraAdapter::Open and LoraSlots::Fill;
  // kInvalidArgument where the name is known, unless `replace`, which keeps requests that run with
  // the old one, and where kMostAdapters are known.
  Status Add(const AdapterSource& source, bool replace);
  // kNotFound for a name that is not known.
  Status Remove(std::string_view name);
  bool Has(std::string_view name) const;
  // In the order in which they were added.
  std::vector<AdapterSource> List() const;

  // An adapter to be used by a request, whose factors stay in their slot meanwhile. kNotFound for a
  // name that is not known; kUnavailable where requests use all slots; errors of Add where it must
  // be read again.
  Result<std::shared_ptr<const AdapterUse>> Acquire(std::string_view name);

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
  // What uses refer to.
  struct State {
    Mutex mutex;
    CondVar filled;
    std::vector<Entry> entries GUARDED_BY(mutex);
    std::vector<Slot> slots GUARDED_BY(mutex);
    std::map<std::string, Counts> counts GUARDED_BY(mutex);
    uint64_t next_id GUARDED_BY(mutex) = 1;
    uint64_t next_serial GUARDED_BY(mutex) = 1;
    uint64_t clock GUARDED_BY(mutex) = 1;

    Entry* Find(std::string_view name) REQUIRES(mutex);
    // A slot that no request uses, emptied; -1 if there is none.
    int TakeSlot() REQUIRES(mutex);
  };

  // Reads the adapter at `path` into the slot.
  Status Fill(int slot, const std::filesystem::path& path);

  LoraSlots& slots_;
  const int64_t max_loras_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// An adapter that a request uses: its slot keeps its content until this is destroyed.
// Thread safety: all methods may be called from any thread.
class AdapterUse {
 public:
  AdapterUse(std::shared_ptr<Adapters::State> state, std::string name, int slot, uint64_t serial)
      : state_(std::move(state)), name_(std::move(name)), slot_(slot), serial_(serial) {}
  AdapterUse(const AdapterUse&) = delete;
  AdapterUse& operator=(const AdapterUse&) = delete;
  ~AdapterUse();

  const std::string& name() const { return name_; }
  int slot() const { return slot_; }
  // Of the slot's content; never used again.
  uint64_t serial() const { return serial_; }
  // Its request waits no longer.
  void MarkRunning() const;

 private:
  const std::shared_ptr<Adapters::State> state_;
  const std::string name_;
  const int slot_;
  const uint64_t serial_;
  mutable bool is_running_ = false;  // guarded by the state's mutex
};

}  // namespace sluice
