// The memory that requests may hold: bodies, parsed JSON, prompts, unsent answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace sluice {

// A budget of bytes. Allocations whose size a client determines take a lease first. Large leases
// never use the last eighth of the budget. So small requests are served even while large ones hold
// their maximum. Thread safety: all methods may be called from any thread.
class RequestMemory {
 public:
  // Leases up to this size are always granted, because the number of connections limits them.
  static constexpr uint64_t kTiny = uint64_t{4} << 10;
  // Leases above this size count as large.
  static constexpr uint64_t kSmall = uint64_t{64} << 10;

  explicit RequestMemory(uint64_t capacity) : capacity_(capacity) {}

  // Sets the capacity that the engine has planned. Until then, no size counts as too large.
  void SetPlanned(uint64_t capacity) {
    capacity_ = capacity;
    planned_ = true;
  }

  uint64_t capacity() const { return capacity_; }
  // Maximum size of a large lease.
  uint64_t largest() const { return Allowed(kSmall + 1); }
  uint64_t used() const { return used_; }
  uint64_t num_refused() const { return num_refused_; }
  // Whether a lease of this size is always refused, even without other leases.
  bool IsTooLarge(uint64_t bytes) const { return planned_ && bytes > kTiny && bytes > largest(); }
  // Returns the number of bytes of large leases that were returned since the last call.
  uint64_t TakeReturned() { return returned_.exchange(0); }

 private:
  friend class MemoryLease;

  uint64_t Allowed(uint64_t bytes) const {
    return bytes <= kSmall ? capacity_.load() : capacity_ - capacity_ / 8;
  }
  // Resizes a lease from `from` to `to` bytes.
  bool Change(uint64_t from, uint64_t to);

  std::atomic<uint64_t> capacity_;
  std::atomic<bool> planned_{false};
  std::atomic<uint64_t> used_{0}, returned_{0}, num_refused_{0};
};

// The response to a request whose lease was refused.
struct MemoryRefusal {
  int status;           // 413 if the request is too large, else 503
  std::string message;  // a sentence without quotes
};
MemoryRefusal RefusalOf(const RequestMemory& memory, uint64_t bytes);

// The bytes that one holder has taken from a RequestMemory; returned on destruction. Thread safety:
// one thread at a time.
class MemoryLease {
 public:
  explicit MemoryLease(std::shared_ptr<RequestMemory> memory) : memory_(std::move(memory)) {}
  MemoryLease(MemoryLease&& other) noexcept
      : memory_(other.memory_), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryLease& operator=(MemoryLease&&) = delete;
  ~MemoryLease() { Shrink(0); }

  uint64_t bytes() const { return bytes_; }
  const RequestMemory& memory() const { return *memory_; }
  // Resizes to `bytes` in total; shrinking always succeeds. Returns false and changes nothing if
  // they do not fit now.
  [[nodiscard]] bool TryResize(uint64_t bytes) {
    if (!memory_->Change(bytes_, bytes)) return false;
    bytes_ = bytes;
    return true;
  }
  // Shrinks to at most `bytes`.
  void Shrink(uint64_t bytes) {
    if (bytes >= bytes_) return;
    memory_->Change(bytes_, bytes);
    bytes_ = bytes;
  }

 private:
  const std::shared_ptr<RequestMemory> memory_;
  uint64_t bytes_ = 0;
};

}  // namespace sluice
