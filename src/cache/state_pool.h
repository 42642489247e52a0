// The slots for what sequences keep beside their KV blocks (the states of recurrent layers), as
// ids: which sequences hold some, and which hold snapshots that a prefix can be continued from.
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

  StateId id() const { return id_; }  // kNoState: none
  void Release();

 private:
  friend class StatePool;
  HeldState(StatePool* pool, StateId id) : pool_(pool), id_(id) {}

  StatePool* pool_ = nullptr;
  StateId id_ = kNoState;
};

// Every slot is held, kept (a snapshot, which the prefix index can find) or free. All operations
// take constant time. Thread safety: used by the engine's thread only. Ownership: outlives its
// HeldStates. Invariant: num_free() + num_held() + num_kept() == num_slots(). Allocates for owners
// that are new.
class StatePool {
 public:
  // Called when the slot of a snapshot is taken for something else.
  class Evictor {
   public:
    virtual ~Evictor() = default;
    virtual void OnEvictState(StateId slot) = 0;
  };

  // Ids are [0, num_slots).
  explicit StatePool(int64_t num_slots);
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;

  void set_evictor(Evictor* evictor) { evictor_ = evictor; }

  int64_t num_slots() const { return static_cast<int64_t>(slots_.size()); }
  int64_t num_free() const { return num_free_; }
  int64_t num_kept() const { return kept_.size(); }
  int64_t num_held() const { return num_slots() - num_free_ - num_kept(); }
  // What Take() could return one after the other.
  int64_t num_available() const { return num_free_ + num_kept(); }

  // A slot of undefined content, or, where no other is left, that of a snapshot, which is evicted:
  // the longest unused one, but none of an owner that has less than an equal share of them
  // (fair_lru.h). Holds none if all are held.
  [[nodiscard]] HeldState Take();
  // The slot becomes a snapshot of `owner`, the last one used.
  StateId Keep(HeldState held, uint64_t owner);
  // A snapshot becomes the last one used, and `owner`'s.
  void Touch(StateId slot, uint64_t owner);
  // A snapshot's slot becomes free, or is held.
  void Drop(StateId slot);
  [[nodiscard]] HeldState TakeKept(StateId slot);

  // Checks that counts, lists and slots agree; the message says which do not.
  Status CheckInvariant() const;

 private:
  friend class HeldState;

  enum class Where : uint8_t { kFree, kKept, kHeld };

  void Release(StateId slot);
  // From the list of kept slots.
  void Remove(StateId slot);
  Where& at(StateId slot) { return slots_[static_cast<size_t>(slot)]; }

  std::vector<Where> slots_;
  IdLists lists_;
  IdLists::List free_;  // the last one released last
  FairLru kept_;
  int64_t num_free_ = 0;
  Evictor* evictor_ = nullptr;
};

}  // namespace sluice
