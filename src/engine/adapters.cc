#include "engine/adapters.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace sluice {
namespace {

tl::unexpected<Error> UnknownAdapter(std::string_view name) {
  return Fail(ErrorCode::kNotFound, fmt::format("there is no LoRA adapter '{}'", name));
}

}  // namespace

Adapters::Adapters(LoraSlots& slots, int64_t max_loras) : slots_(slots), max_loras_(max_loras) {
  const MutexLock lock(state_->mutex);
  state_->slots.resize(static_cast<size_t>(slots.num_slots()));
}

Adapters::Entry* Adapters::State::Find(std::string_view name) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.source.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

int Adapters::State::TakeSlot() {
  int best = -1;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].uses > 0 || slots[i].is_filling) continue;
    // Empty ones first, then the one that was unused for the longest.
    if (best < 0 || AgeOf(slots[i]) < AgeOf(slots[static_cast<size_t>(best)]))
      best = static_cast<int>(i);
  }
  if (best < 0) return best;
  Slot& slot = slots[static_cast<size_t>(best)];
  for (Entry& entry : entries) {
    if (entry.id == slot.owner) entry.slot = -1;
  }
  slot.owner = 0;
  return best;
}

Status Adapters::Fill(int slot, const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const LoraAdapter adapter, LoraAdapter::Open(path, slots_.layout()));
  return slots_.Fill(slot, adapter);
}

Status Adapters::Add(const AdapterSource& source, bool replace) {
  const auto exists = [&]() -> Status {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the LoRA adapter '{}' is loaded already", source.name));
  };
  if (!replace && Has(source.name)) return exists();
  int64_t rank = 0;
  {
    ASSIGN_OR_RETURN(const LoraAdapter adapter, LoraAdapter::Open(source.path, slots_.layout()));
    rank = adapter.rank();
  }
  Entry replaced;
  {
    const MutexLock lock(state_->mutex);
    Entry* entry = state_->Find(source.name);
    if (entry != nullptr && !replace) return exists();
    if (entry == nullptr && state_->entries.size() >= kMostAdapters) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{} LoRA adapters are known, as many as may be: unload some", kMostAdapters));
    }
    if (entry == nullptr) {
      entry = &state_->entries.emplace_back();
    } else {
      replaced = *entry;
      if (replaced.slot >= 0) state_->slots[static_cast<size_t>(replaced.slot)].owner = 0;
    }
    *entry = {.source = source, .id = state_->next_id++};
  }
  // Loaded at once where there is room, so that the first request need not wait, and so that
  // numbers which are not finite are found now.
  const auto use = Acquire(source.name);
  if (!use && use.error().code != ErrorCode::kUnavailable) {
    const MutexLock lock(state_->mutex);
    if (Entry* entry = state_->Find(source.name); entry != nullptr) {
      if (replaced.id == 0) {
        state_->entries.erase(state_->entries.begin() + (entry - state_->entries.data()));
      } else {
        *entry = {.source = replaced.source, .id = state_->next_id++};
      }
    }
    return tl::unexpected(use.error());
  }
  LOG_INFO("engine", "LoRA adapter '{}' of rank {} was loaded from {}{}", source.name, rank,
           source.path.string(), use ? "" : "; it is read again when a slot of memory is free");
  return {};
}

Status Adapters::Remove(std::string_view name) {
  {
    const MutexLock lock(state_->mutex);
    Entry* const entry = state_->Find(name);
    if (entry == nullptr) return UnknownAdapter(name);
    if (entry->slot >= 0) state_->slots[static_cast<size_t>(entry->slot)].owner = 0;
    state_->entries.erase(state_->entries.begin() + (entry - state_->entries.data()));
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
  MutexLock lock(state_->mutex);
  for (;;) {
    Entry* entry = state_->Find(name);
    if (entry == nullptr) return UnknownAdapter(name);
    if (entry->slot < 0) {
      const int number = state_->TakeSlot();
      if (number < 0) {
        return Fail(ErrorCode::kUnavailable,
                    fmt::format("requests use all {} LoRA adapters that are in memory at a time; "
                                "try again later, or start the server with a larger "
                                "--max-cpu-loras",
                                state_->slots.size()));
      }
      const uint64_t id = entry->id;
      const std::filesystem::path path = entry->source.path;
      entry->slot = number;
      state_->slots[static_cast<size_t>(number)] = {
          .owner = id, .serial = state_->next_serial++, .is_filling = true};
      lock.Unlock();
      const Status filled = Fill(number, path);
      lock.Lock();
      Slot& slot = state_->slots[static_cast<size_t>(number)];
      slot.is_filling = false;
      entry = state_->Find(name);
      if (!filled) {
        slot.owner = 0;
        if (entry != nullptr && entry->id == id) entry->slot = -1;
      }
      state_->filled.NotifyAll();
      if (!filled) return tl::unexpected(filled.error());
      continue;  // It may have been removed or replaced meanwhile.
    }
    Slot& slot = state_->slots[static_cast<size_t>(entry->slot)];
    if (slot.is_filling) {
      state_->filled.Wait(lock);
      continue;
    }
    ++slot.uses;
    slot.last_use = state_->clock++;
    ++state_->counts[entry->source.name].waiting;
    return std::make_shared<const AdapterUse>(state_, entry->source.name, entry->slot, slot.serial);
  }
}

std::map<std::string, Adapters::Counts> Adapters::counts() const {
  const MutexLock lock(state_->mutex);
  return state_->counts;
}

AdapterUse::~AdapterUse() {
  const MutexLock lock(state_->mutex);
  --state_->slots[static_cast<size_t>(slot_)].uses;
  const auto found = state_->counts.find(name_);
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
