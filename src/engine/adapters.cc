#include "engine/adapters.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/firewall.h"
#include "base/log.h"
#include "base/mutex_unlock.h"

namespace sluice {
namespace {

// Delay before the waiting requests are retried after an exception.
constexpr std::chrono::milliseconds kTimeToRetry(10);

tl::unexpected<Error> UnknownAdapter(std::string_view name) {
  return Fail(ErrorCode::kNotFound, fmt::format("there is no LoRA adapter '{}'", name));
}

}  // namespace

Adapters::Adapters(std::shared_ptr<LoraStore> slots, int64_t max_loras)
    : slots_(std::move(slots)), max_loras_(max_loras) {
  {
    const MutexLock lock(state_->mutex);
    state_->slots.resize(static_cast<size_t>(slots_->num_slots()));
  }
  thread_ = StartThread("adapters", [this] { ServeWaiters(); });
}

Adapters::~Adapters() {
  {
    const MutexLock lock(state_->mutex);
    state_->is_stopping = true;
  }
  state_->changed.NotifyAll();
  thread_.join();
}

Adapters::Entry* Adapters::State::Find(std::string_view name) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.source.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

int Adapters::State::TakeSlot(Entry& entry) {
  int best = -1;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].uses > 0 || slots[i].is_filling) continue;
    // Prefers empty slots, then the least recently used one.
    if (best < 0 || AgeOf(slots[i]) < AgeOf(slots[static_cast<size_t>(best)]))
      best = static_cast<int>(i);
  }
  if (best < 0) return best;
  Slot& slot = slots[static_cast<size_t>(best)];
  for (Entry& other : entries) {
    if (other.id == slot.owner) other.slot = -1;
  }
  entry.slot = best;
  slot = {.owner = entry.id, .serial = next_serial++, .is_filling = true};
  return best;
}

void Adapters::State::EndFilling(int number, bool failed) {
  Slot& slot = slots[static_cast<size_t>(number)];
  slot.is_filling = false;
  if (failed) {
    for (Entry& entry : entries) {
      if (entry.id == slot.owner) entry.slot = -1;
    }
    slot.owner = 0;
  }
  changed.NotifyAll();
}

void Adapters::State::Use(const Entry& entry, const AdapterUse& use) {
  Slot& slot = slots[static_cast<size_t>(entry.slot)];
  ++slot.uses;
  slot.last_use = clock++;
  use.slot_ = entry.slot;
  use.serial_ = slot.serial;
}

Status Adapters::Fill(int slot, const LoraAdapter& adapter, MutexLock& lock) {
  Status filled;
  {
    const MutexUnlock unlock(state_->mutex, lock);
    filled = CatchToResult([&] { return slots_->Fill(slot, adapter); });
  }
  state_->EndFilling(slot, /*failed=*/!filled);
  return filled;
}

Status Adapters::Fill(int slot, const std::filesystem::path& path, MutexLock& lock) {
  std::optional<Result<LoraAdapter>> opened;
  {
    const MutexUnlock unlock(state_->mutex, lock);
    opened.emplace(CatchToResult([&] { return LoraAdapter::Open(path, slots_->layout()); }));
  }
  Result<LoraAdapter>& adapter = *opened;
  Status filled;
  if (adapter) {
    filled = Fill(slot, *adapter, lock);
  } else {
    state_->EndFilling(slot, /*failed=*/true);
    filled = tl::unexpected(std::move(adapter).error());
  }
  // The adapter was loaded before. If it cannot be read now, the request is not at fault.
  if (!filled && filled.error().code != ErrorCode::kResourceExhausted &&
      filled.error().code != ErrorCode::kUnavailable)
    filled.error().code = ErrorCode::kInternal;
  return filled;
}

Status Adapters::Add(const AdapterSource& source, bool replace) {
  const auto exists = [&]() -> Status {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the LoRA adapter '{}' is loaded already", source.name));
  };
  if (!replace && Has(source.name)) return exists();
  ASSIGN_OR_RETURN(const LoraAdapter adapter, LoraAdapter::Open(source.path, slots_->layout()));
  Entry replaced;
  MutexLock lock(state_->mutex);
  Entry* entry = state_->Find(source.name);
  if (entry != nullptr && !replace) return exists();
  if (entry == nullptr && state_->entries.size() >= kMostAdapters) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} LoRA adapters are registered, which is the limit: unload some",
                            kMostAdapters));
  }
  if (entry == nullptr) {
    entry = &state_->entries.emplace_back();
  } else {
    replaced = *entry;
    if (replaced.slot >= 0) state_->slots[static_cast<size_t>(replaced.slot)].owner = 0;
  }
  const uint64_t id = state_->next_id++;
  *entry = {.source = source, .id = id};
  // Loads immediately if a slot is free, so that the first request need not wait and non-finite
  // weights are found now.
  const int slot = state_->TakeSlot(*entry);
  Status filled = slot < 0 ? Status() : Fill(slot, adapter, lock);
  if (!filled) {
    entry = state_->Find(source.name);
    if (entry != nullptr && entry->id == id) {
      if (replaced.id == 0) {
        state_->entries.erase(state_->entries.begin() + (entry - state_->entries.data()));
      } else {
        *entry = {.source = replaced.source, .id = state_->next_id++};
      }
    }
    return filled;
  }
  lock.Unlock();
  LOG_INFO("engine", "LoRA adapter '{}' of rank {} was loaded from {}{}", source.name,
           adapter.rank(), source.path.string(),
           slot >= 0 ? "" : "; it is read again when a slot of memory is free");
  return {};
}

Status Adapters::Remove(std::string_view name) {
  {
    const MutexLock lock(state_->mutex);
    Entry* const entry = state_->Find(name);
    if (entry == nullptr) return UnknownAdapter(name);
    if (entry->slot >= 0) state_->slots[static_cast<size_t>(entry->slot)].owner = 0;
    state_->entries.erase(state_->entries.begin() + (entry - state_->entries.data()));
    state_->changed.NotifyAll();  // Wakes the requests that wait for this adapter.
  }
  LOG_INFO("engine", "LoRA adapter '{}' was removed", name);
  return {};
}

bool Adapters::Has(std::string_view name) const {
  const MutexLock lock(state_->mutex);
  return state_->Find(name) != nullptr;
}

std::vector<AdapterSource> Adapters::List() const {
  const MutexLock lock(state_->mutex);
  std::vector<AdapterSource> sources;
  for (const Entry& entry : state_->entries) sources.push_back(entry.source);
  return sources;
}

Result<std::shared_ptr<const AdapterUse>> Adapters::Acquire(std::string_view name) {
  // Destroyed after the lock is released, because its destructor takes the lock.
  std::shared_ptr<const AdapterUse> use;
  MutexLock lock(state_->mutex);
  for (;;) {
    Entry* const entry = state_->Find(name);
    if (entry == nullptr) return UnknownAdapter(name);
    if (entry->slot < 0) {
      std::erase_if(state_->waiters, [](const Waiter& waiter) { return waiter.use.expired(); });
      const std::filesystem::path path = entry->source.path;
      const int slot = state_->waiters.empty() ? state_->TakeSlot(*entry) : -1;
      if (slot < 0) break;
      RETURN_IF_ERROR(Fill(slot, path, lock));
      continue;  // The adapter may have been removed or replaced meanwhile.
    }
    if (!state_->slots[static_cast<size_t>(entry->slot)].is_filling) {
      use = std::make_shared<const AdapterUse>(state_, entry->source.name);
      state_->Use(*entry, *use);
      ++state_->counts[use->name_].waiting;
      return use;
    }
    state_->changed.Wait(lock);
  }
  use = std::make_shared<const AdapterUse>(state_, std::string(name));
  ++state_->counts[use->name_].waiting;
  state_->waiters.push_back({.use = use, .name = use->name_, .then = nullptr});
  state_->changed.NotifyAll();
  return use;
}

void Adapters::WhenReady(const std::shared_ptr<const AdapterUse>& use,
                         std::function<void(const Status&)> then) {
  Status status;
  {
    const MutexLock lock(state_->mutex);
    if (use->error_) status = tl::unexpected(*use->error_);
    if (use->slot_ < 0 && !use->error_) {
      // Compares without taking a reference. If that were the last reference, releasing it under
      // the lock would deadlock.
      const auto waiter =
          std::find_if(state_->waiters.begin(), state_->waiters.end(), [&](const Waiter& waiter) {
            return !waiter.use.owner_before(use) && !use.owner_before(waiter.use);
          });
      waiter->then = std::move(then);
      return;
    }
  }
  then(status);
}

void Adapters::ServeWaiters() {
  MutexLock lock(state_->mutex);
  while (!state_->is_stopping) {
    bool is_served = false;
    const bool is_done = RunGuarded("engine", "to load an adapter for requests",
                                    [&]() REQUIRES(state_->mutex) { is_served = ServeOne(lock); });
    if (is_done && !is_served) state_->changed.Wait(lock);
    if (!is_done) state_->changed.WaitUntil(lock, std::chrono::steady_clock::now() + kTimeToRetry);
  }
}

bool Adapters::ServeOne(MutexLock& lock) {
  std::erase_if(state_->waiters, [](const Waiter& waiter) { return waiter.use.expired(); });
  for (auto waiter = state_->waiters.begin(); waiter != state_->waiters.end(); ++waiter) {
    Entry* const entry = state_->Find(waiter->name);
    if (entry == nullptr) {
      Tell(waiter, UnknownAdapter(waiter->name), lock);
      return true;
    }
    if (entry->slot < 0) {
      // Copied before the slot is taken: after that, nothing may throw until Fill.
      const std::string name = waiter->name;
      const std::filesystem::path path = entry->source.path;
      const int slot = state_->TakeSlot(*entry);
      if (slot < 0) continue;
      const Status filled = Fill(slot, path, lock);
      if (filled) return true;
      // Another waiter for the same name may be first in the list by now; all of them read the same
      // file.
      const auto failed = std::find_if(state_->waiters.begin(), state_->waiters.end(),
                                       [&](const Waiter& other) { return other.name == name; });
      if (failed != state_->waiters.end()) Tell(failed, filled, lock);
      return true;
    }
    if (state_->slots[static_cast<size_t>(entry->slot)].is_filling) continue;
    Tell(waiter, {}, lock);
    return true;
  }
  return false;
}

void Adapters::Tell(std::list<Waiter>::iterator waiter, const Status& status, MutexLock& lock) {
  std::shared_ptr<const AdapterUse> use = waiter->use.lock();
  // Set first, because copying the error may throw.
  if (use != nullptr && !status) use->error_ = status.error();
  const std::function<void(const Status&)> then = std::move(waiter->then);
  if (use != nullptr && status) state_->Use(*state_->Find(waiter->name), *use);
  state_->waiters.erase(waiter);
  const MutexUnlock unlock(state_->mutex, lock);
  if (use != nullptr && then &&
      !RunGuarded("engine", "to go on with a request", [&] { then(status); })) {
    // The request must get an answer in any case. A short message needs no memory.
    RunGuarded("engine", "to fail a request",
               [&] { then(Fail(ErrorCode::kResourceExhausted, "no memory")); });
  }
  use.reset();  // This may be the last reference; its destructor takes the lock.
}

std::map<std::string, Adapters::Counts> Adapters::counts() const {
  const MutexLock lock(state_->mutex);
  return state_->counts;
}

bool AdapterUse::is_ready() const {
  const MutexLock lock(state_->mutex);
  return slot_ >= 0;
}

AdapterUse::~AdapterUse() {
  const MutexLock lock(state_->mutex);
  if (slot_ >= 0 && --state_->slots[static_cast<size_t>(slot_)].uses == 0)
    state_->changed.NotifyAll();
  const auto found = state_->counts.find(name_);
  // There was no memory to count this use.
  if (found == state_->counts.end()) return;
  --(is_running_ ? found->second.running : found->second.waiting);
  if (found->second.running + found->second.waiting == 0) state_->counts.erase(found);
}

void AdapterUse::MarkRunning() const {
  const MutexLock lock(state_->mutex);
  if (std::exchange(is_running_, true)) return;
  Adapters::Counts& counts = state_->counts[name_];
  --counts.waiting;
  ++counts.running;
}

}  // namespace sluice
