// Manages slots for the states of recurrent layers, which sequences keep besides KV blocks. Handles
// only ids. A slot belongs to a sequence, or holds a snapshot from which a prefix can be continued.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cache/fair_lru.h"
#include "cache/id_lists.h"

namespace sluice {

using StateId = int32_t;

constexpr StateId kNoState = -1;

class StatePool;

// A slot that a sequence holds. Ownership: move-only; releases the slot when destroyed.
class HeldState {
 public:
  HeldState() = default;
  HeldState(HeldState&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), id_(std::exchange(other.id_, kNoState)) {}
  HeldState& operator=(HeldState&& other) noexcept {
    if (this != &other) {
      Release();
      pool_ = std::exchange(other.pool_, nullptr);
      id_ = std::exchange(other.id_, kNoState);
    }
    return *this;
  }
  ~HeldState() { Release(); }

  StateId id() const { return id_; }  // kNoState if empty
  void Release();

 private:
  friend class StatePool;
  HeldState(StatePool* pool, StateId id) : pool_(pool), id_(id) {}

  StatePool* pool_ = nullptr;
  StateId id_ = kNoState;
};

// Every slot is held, kept (it holds a snapshot that the prefix index can find) or free. All
// operations take constant time; memory is allocated only for a new owner. Thread safety: used by
// the engine's thread only. Ownership: outlives its HeldStates. Invariant: num_free() + num_held()
// + num_kept() == num_slots().
class StatePool {
 public:
  // Is notified when a snapshot's slot is reused.
  class Evictor {
   public:
    virtual ~Evictor() = default;
    virtual void OnEvictState(StateId slot) = 0;
  };

  // Slot ids are [0, num_slots).
  explicit StatePool(int64_t num_slots);
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;

  void set_evictor(Evictor* evictor) { evictor_ = evictor; }

  int64_t num_slots() const { return static_cast<int64_t>(slots_.size()); }
  int64_t num_free() const { return num_free_; }
  int64_t num_kept() const { return kept_.size(); }
  int64_t num_held() const { return num_slots() - num_free_ - num_kept(); }
  // Number of consecutive calls of Take() that would succeed now.
  int64_t num_available() const { return num_free_ + num_kept(); }

  // Takes a free slot with undefined content. If none is free, evicts the least recently used
  // snapshot, but spares owners with less than an equal share (fair_lru.h). Returns an empty
  // HeldState if all slots are held.
  [[nodiscard]] HeldState Take();
  // Turns the slot into a snapshot of `owner`, the most recently used one. Returns its id.
  StateId Keep(HeldState held, uint64_t owner);
  // Makes a snapshot the most recently used one and assigns it to `owner`.
  void Touch(StateId slot, uint64_t owner);
  // Both remove a snapshot. Drop frees its slot; TakeKept returns the slot as held.
  void Drop(StateId slot);
  [[nodiscard]] HeldState TakeKept(StateId slot);

  // Checks that counts, lists and slots agree; the error message names the mismatch.
  Status CheckInvariant() const;

 private:
  friend class HeldState;

  enum class Where : uint8_t { kFree, kKept, kHeld };

  void Release(StateId slot);
  // Removes a slot from the kept slots.
  void Remove(StateId slot);
  Where& at(StateId slot) { return slots_[static_cast<size_t>(slot)]; }

  std::vector<Where> slots_;
  IdLists lists_;
  IdLists::List free_;  // most recently released last
  FairLru kept_;
  int64_t num_free_ = 0;
  Evictor* evictor_ = nullptr;
};

}  // namespace sluice
